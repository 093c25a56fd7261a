// SPDX-License-Identifier: Apache-2.0
// Bytes of model state per parameter, as programs hold them: every state format, number of ranks and
// kind of gradient store, on the device and off it. Shapes have no padding, so that all is exact.

#include "protrain/chunk/layout.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verify.hpp"
#include "protrain/trace/analytic.hpp"
#include "protrain/trace/trace.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace state_bytes_test {

namespace {

using namespace protrain;
using namespace protrain::literals;
using model::state_format;

/// Bytes of one rank in one memory.
struct held {
  std::uint64_t values = 0;
  std::uint64_t states = 0;
  std::uint64_t stores = 0;
  bool operator==(held const&) const = default;
};

/// Allocations that outlive the step, and those that are a gradient store's, each once.
held held_in(schedule::program const& p, space where) {
  held out{};
  std::vector<bool> store(p.allocations.size(), false);
  for (schedule::operand const& o : p.operands) {
    store[o.allocation.index()] = store[o.allocation.index()] || o.what == schedule::role::store;
  }
  for (std::size_t i = 0; i < p.allocations.size(); ++i) {
    schedule::allocation const& a = p.allocations[i];
    if (a.where != where) {
      continue;
    }
    out.stores += store[i] ? a.bytes : 0;
    bool const stays = a.carried && !store[i];
    out.values += stays && a.what == category::parameters ? a.bytes : 0;
    out.states += stays && a.what == category::optimizer ? a.bytes : 0;
  }
  return out;
}

/// How gradients come: updates may start at once, or wait for the norm, or several contributions are
/// added up, because of micro-batches or of a second use.
enum class store : std::uint8_t { none, waits, accumulates, tied };

struct job_kind {
  dtype type;
  state_format format;
  std::uint64_t state;  ///< bytes per parameter beside the value, at W = 1
};

constexpr std::uint64_t per_rank = 384;

/// Three blocks of one tensor each, which all ranks can divide into whole granules.
trace::trace facts(job_kind const& kind, std::uint64_t world, store how) {
  trace::trace t{.job = {.micro_batch = 1,
                         .sequence = 8,
                         .accumulate = how == store::accumulates ? 2U : 1U,
                         .world = world,
                         .type = kind.type,
                         .state = kind.format,
                         .clip = how == store::waits ? 1.0F : 0.0F}};
  t.shapes = {{.name = "first", .output = {512}},
              {.name = "body", .input = {512}, .output = {512}},
              {.name = "last", .input = {512}}};
  t.blocks = {{0}, {1}, {2}};
  for (std::uint32_t b = 0; b < 3; ++b) {
    t.parameters.push_back(
        {.name = "w", .shape = {per_rank * world}, .type = kind.type, .uses = {{b}}});
  }
  if (how == store::tied) {
    t.parameters.front().uses.push_back({2});
  }
  return t;
}

schedule::program compiled(trace::trace const& t, bool persistent) {
  chunk::layout const l = chunk::make_layout(t, per_rank * t.job.world);
  schedule::knobs k{};
  k.persistent.assign(l.chunks.size(), persistent ? 1 : 0);
  k.sites.assign(l.chunks.size(), persistent ? update::site::gpu : update::site::cpu);
  k.strategies.assign(t.blocks.size(), activation::strategy::keep);
  k.buffers = schedule::fewest_buffers(l, k.persistent);
  k.time =
      model::needs_norm(t.job) ? update::timing::after_backward : update::timing::during_backward;
  auto const p = schedule::compile(t, l, k);
  REQUIRE(p.has_value());
  std::uint64_t const all = ~std::uint64_t{0};
  REQUIRE(schedule::verify(*p, t, l, all, all).ok);
  return *p;
}

/// What a rank holds of `n` parameters of which it has `shard`.
held expected(
    job_kind const& kind, store how, bool persistent, std::uint64_t n, std::uint64_t shard) {
  std::uint64_t const value = size_of(kind.type);
  bool const waits = how == store::waits || kind.type == dtype::f16;
  std::uint64_t const sum = how == store::accumulates || how == store::tied ? 4 : 0;
  return {.values = value * (persistent ? n : shard),
          .states = kind.state * shard,
          .stores = (sum > 0 ? sum
                     : waits ? value
                             : 0) *
                    shard};
}

constexpr job_kind kinds[] = {{dtype::bf16, state_format::split_master, 10},
                              {dtype::bf16, state_format::separate_master, 12},
                              {dtype::f16, state_format::separate_master, 12},
                              {dtype::f32, state_format::fp32, 8}};

}  // namespace

TEST_CASE("bytes per parameter: every format, world and store, on the device and off it") {
  for (job_kind const& kind : kinds) {
    for (std::uint64_t const world : {1U, 2U, 3U, 4U, 8U}) {
      for (store const how : {store::none, store::waits, store::accumulates}) {
        for (bool const persistent : {false, true}) {
          CAPTURE(std::string(name_of(kind.type)));
          CAPTURE(std::string(name_of(kind.format)));
          CAPTURE(world);
          CAPTURE(static_cast<int>(how));
          CAPTURE(persistent);
          schedule::program const p = compiled(facts(kind, world, how), persistent);
          std::uint64_t const shard = 3 * per_rank;
          held const all = expected(kind, how, persistent, shard * world, shard);
          held const there = held_in(p, persistent ? space::device : space::host);
          CHECK(there.values == all.values);
          CHECK(there.states == all.states);
          CHECK(there.stores == all.stores);
          CHECK(held_in(p, persistent ? space::host : space::device) == held{});
        }
      }
    }
  }
}

TEST_CASE("bytes per parameter: totals at one rank, and of a tied tensor alone") {
  std::uint64_t const totals[][3] = {{12, 14, 16}, {14, 16, 18}, {16, 16, 18}, {12, 16, 16}};
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::size_t how = 0; how < 3; ++how) {
      CAPTURE(k);
      CAPTURE(how);
      held const h =
          held_in(compiled(facts(kinds[k], 1, static_cast<store>(how)), false), space::host);
      CHECK(h.values + h.states + h.stores == totals[k][how] * 3 * per_rank);
    }
  }
  // Of three tensors one has two contributions; the others' updates may start at once.
  held const tied = held_in(compiled(facts(kinds[0], 3, store::tied), false), space::host);
  CHECK(tied.stores == 4 * per_rank);
  CHECK(tied.states == 10 * 3 * per_rank);
}

TEST_CASE("a model of 32B, one rank, everything on the host: 393, 459 and 524 GB") {
  struct row {
    float clip;
    std::uint64_t accumulate;
    std::uint64_t gigabytes;
  };
  for (row const& each : {row{0, 1, 393}, row{1, 1, 459}, row{0, 2, 524}, row{1, 2, 524}}) {
    CAPTURE(each.gigabytes);
    trace::trace const t = trace::analytic({.type = model::family::qwen2,
                                            .layers = 64,
                                            .hidden = 5120,
                                            .heads = 40,
                                            .key_heads = 8,
                                            .head_channels = 128,
                                            .inner = 27'648,
                                            .vocabulary = 152'064},
                                           {.micro_batch = 1,
                                            .sequence = 1024,
                                            .accumulate = each.accumulate,
                                            .type = dtype::bf16,
                                            .state = state_format::split_master,
                                            .clip = each.clip},
                                           hw::h200x1());
    plan::budget const plenty{.gpu = 1024_GiB, .host = 2048_GiB};
    plan::request wanted = plan::offload_and_checkpoint_all();
    wanted.defer = 0;  // an update that is left to the next step keeps its gradient until then
    auto const p = plan::make(t, hw::h200x1(), plenty, plan::policies<>{}, wanted);
    REQUIRE(p.has_value());
    auto const programs = p->segments();
    REQUIRE(programs.has_value());
    held const h = held_in(programs->front(), space::host);
    std::uint64_t const states = h.values + h.states + h.stores;
    CHECK((states + 500'000'000) / 1'000'000'000 == each.gigabytes);
    CHECK((p->predicted.host.peak <= (500_GB).value) == (each.gigabytes < 500));
  }
}

}  // namespace state_bytes_test
