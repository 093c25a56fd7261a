// SPDX-License-Identifier: Apache-2.0
// What programs of every published shape take, against what their instructions touch and against
// sums over published parameter counts, and that searching keeps to a cap on them.

#include "protrain/chunk/layout.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/plan/limits.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/analytic.hpp"
#include "test/support/published.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace estimator_shapes_test {

namespace {

using namespace protrain;
using schedule::role;

constexpr std::size_t at(category c) { return static_cast<std::size_t>(c); }

/// The category by what memory is to the instructions that touch it.
category meaning(schedule::opcode op,
                 schedule::operand const& o,
                 space where,
                 std::vector<std::uint8_t> const& stays) {
  bool const streams = op == schedule::opcode::state_in || op == schedule::opcode::update_part ||
                       op == schedule::opcode::state_out;
  if (streams && where == space::device) {
    return category::staging;
  }
  switch (o.what) {
    case role::value:
      return where == space::host || stays[o.chunk.index()] != 0 ? category::parameters
                                                                 : category::parameter_buffers;
    case role::state:
      return category::optimizer;
    case role::gradient:
    case role::store:
      return category::gradients;
    case role::input:
    case role::output:
    case role::input_gradient:
    case role::output_gradient:
      return category::boundaries;
    case role::saved:
    case role::rebuilt:
      return where == space::host ? category::swapped : category::activations;
    case role::scratch:
      return category::scratch;
    case role::batch:
    case role::loss:
      return category::batch;
    default:
      return category::staging;
  }
}

/// Bytes of one memory that instructions touch, from the first that does to the last, at most;
/// values at home and state throughout, since they last from step to step. Of the allocations it
/// takes their identity and nothing else: neither bytes nor category nor when they live.
std::array<std::uint64_t, category_count> touched_at_most(schedule::program const& p,
                                                          space where,
                                                          std::vector<std::uint8_t> const& stays) {
  struct extent {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    std::uint64_t end = 0;  ///< of the bytes
    category what = category::scratch;
  };
  std::vector<extent> seen(p.allocations.size());
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
    for (schedule::operand const& o : p.operands_of(p.instructions[i])) {
      if (p.allocations[o.allocation.index()].where != where || o.bytes == 0) {
        continue;
      }
      extent& e = seen[o.allocation.index()];
      e = {.first = e.end == 0 ? i : e.first,
           .last = i,
           .end = std::max(e.end, o.offset + o.bytes),
           .what = meaning(p.instructions[i].op, o, where, stays)};
    }
  }
  std::vector<std::array<std::int64_t, category_count>> changes(p.instructions.size() + 1);
  for (extent& e : seen) {
    if (e.what == category::parameters || e.what == category::optimizer) {
      e.first = 0;
      e.last = static_cast<std::uint32_t>(p.instructions.size()) - 1;
    }
    if (e.end > 0) {
      changes[e.first][at(e.what)] += static_cast<std::int64_t>(e.end);
      changes[e.last + 1][at(e.what)] -= static_cast<std::int64_t>(e.end);
    }
  }
  std::array<std::int64_t, category_count> now{};
  std::array<std::uint64_t, category_count> most{};
  for (auto const& change : changes) {
    for (std::size_t c = 0; c < category_count; ++c) {
      now[c] += change[c];
      most[c] = std::max(most[c], static_cast<std::uint64_t>(now[c]));
    }
  }
  return most;
}

model::job const job{.micro_batch = 2,
                     .sequence = 1024,
                     .accumulate = 2,
                     .type = dtype::bf16,
                     .state = model::state_format::split_master,
                     .clip = 1.0F};

/// Of a search that need not be good.
constexpr plan::limits few{.programs = 30, .refinements = 10, .instructions = 20'000};

plan::plan planned(trace::trace const& t, std::string const& wanted) {
  auto const request = plan::parse(wanted, t.job);
  REQUIRE(request.has_value());
  plan::budget const all{.gpu = {1ULL << 50U}, .host = {1ULL << 50U}};
  auto made = plan::make(t, hw::host_demo(), all, plan::policies<>{}, *request);
  REQUIRE(made.has_value());
  return *std::move(made);
}

/// Most categories to the byte; never less than is touched, and more only where memory waits for
/// what comes into it.
void check_against_touched(schedule::program const& p,
                           plan::plan const& of,
                           space where,
                           std::uint64_t largest_chunk) {
  auto const touched = touched_at_most(p, where, of.knobs.persistent);
  auto const said = schedule::memory_of(p, where).maximum;
  for (category const c : {category::parameters,
                           category::optimizer,
                           category::boundaries,
                           category::scratch,
                           category::swapped}) {
    CAPTURE(name_of(c));
    CHECK(said[at(c)] == touched[at(c)]);
  }
  for (category const c : {category::parameter_buffers,
                           category::gradients,
                           category::activations,
                           category::batch,
                           category::staging}) {
    CAPTURE(name_of(c));
    CHECK(said[at(c)] >= touched[at(c)]);
  }
  std::uint64_t most_saved = 0;
  for (trace::block_shape const& s : of.trace.shapes) {
    most_saved = std::max(most_saved, s.saved.value);
  }
  std::uint64_t const slot = 2 * largest_chunk;
  CHECK(said[at(category::parameter_buffers)] <=
        touched[at(category::parameter_buffers)] + of.knobs.buffers * slot);
  CHECK(said[at(category::gradients)] <=
        touched[at(category::gradients)] + of.knobs.gradient_slots * slot);
  CHECK(said[at(category::activations)] <=
        touched[at(category::activations)] + of.knobs.swap_ahead * most_saved);
  CHECK(said[at(category::batch)] <= touched[at(category::batch)] + 64);
  CHECK(said[at(category::staging)] <= touched[at(category::staging)] + 64);
}

}  // namespace

TEST_CASE("estimator forgets categories: all published shapes, against what instructions touch") {
  std::set<model::family> families;
  for (test::published const& m : test::published_models()) {
    CAPTURE(m.name);
    families.insert(m.config.type);
    trace::trace const t = trace::analytic(m.config, job, hw::host_demo());
    for (std::string const wanted :
         {"keep_all", "persist=2,buffer=3,swap=2,checkpoint=5,interval=2,defer=0"}) {
      CAPTURE(wanted);
      plan::plan const p = planned(t, wanted);
      std::uint64_t elements = 0;
      std::uint64_t payload = 0;
      std::uint64_t largest = 0;
      for (chunk::chunk const& c : p.layout.chunks) {
        elements += c.elements;
        payload += c.payload;
        largest = std::max(largest, c.elements);
      }
      CHECK(payload == m.parameters);
      auto const program = schedule::compile(t, p.layout, p.knobs);
      REQUIRE(program.has_value());
      for (space const where : {space::device, space::host}) {
        check_against_touched(*program, p, where, largest);
      }
      auto const& device = p.predicted.device.maximum;
      auto const& host = p.predicted.host.maximum;
      CHECK(device[at(category::parameters)] + host[at(category::parameters)] == 2 * elements);
      CHECK(device[at(category::optimizer)] + host[at(category::optimizer)] == 10 * elements);
    }
  }
  CHECK(families.size() == 6);
}

TEST_CASE("cap not respected: plans of published models within 16 GiB, by what is touched") {
  constexpr bytes cap = 16_GiB;
  for (model::decoder_config const& c :
       {decoder_of(model::gpt2_config{.layers = 48, .hidden = 1600, .heads = 25, .inner = 6400}),
        test::llama_3_8b}) {
    CAPTURE(name_of(c.type));
    trace::trace t = trace::analytic(c, job, hw::h200x1());
    t.outside = 700_MiB;  // what the process has besides
    auto const found =
        plan::search(t, hw::h200x1(), {.gpu = cap, .host = 512_GiB}, plan::policies<>{}, few);
    REQUIRE(found.has_value());
    auto const programs = found->segments();
    REQUIRE(programs.has_value());
    CHECK(programs->size() >= 2);
    for (schedule::program const& p : *programs) {  // steps, flush, evaluation
      CAPTURE(name_of(p.part));
      CHECK(schedule::memory_of(p, space::device).peak + t.outside.value <= cap.value);
      auto const touched = touched_at_most(p, space::device, found->knobs.persistent);
      std::uint64_t highest = 0;  // address
      for (schedule::operand const& o : p.operands) {
        schedule::allocation const& a = p.allocations[o.allocation.index()];
        highest = std::max(highest, a.where == space::device ? a.offset + o.offset + o.bytes : 0);
      }
      CHECK(highest + t.outside.value <= cap.value);
      CHECK(std::ranges::max(touched) <= highest);
    }
    // Without a plan everything stays: more than the cap.
    CHECK(planned(t, "keep_all").predicted.device.peak > cap.value);
  }
}

}  // namespace estimator_shapes_test
