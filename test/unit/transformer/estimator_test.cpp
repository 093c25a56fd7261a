// SPDX-License-Identifier: Apache-2.0
// What planning says about memory, against a ledger that sees every lease of the same programs and
// against sums by hand: published models, in every category, without a tensor.

#include "examples/transformer/gpt2.hpp"
#include "examples/transformer/llama.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/device/ledger.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/model/operations.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/profile/dry_run.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/analytic.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace estimator_test {

namespace {

using namespace protrain;

constexpr std::size_t at(category c) { return static_cast<std::size_t>(c); }

struct subject {
  std::string name;
  trace::trace facts;
};

model::job job_of(std::uint64_t sequence, std::uint64_t accumulate, float clip) {
  return {.micro_batch = 2,
          .sequence = sequence,
          .accumulate = accumulate,
          .type = dtype::bf16,
          .state = model::state_format::split_master,
          .clip = clip,
          .dropout = 0.1F};
}

std::vector<subject> subjects() {
  std::vector<subject> out;
  for (auto const& [name, c] : std::vector<std::pair<char const*, model::gpt2_config>>{
           {"GPT-2", {}},
           {"GPT-2 XL", {.layers = 48, .hidden = 1600, .heads = 25, .inner = 6400}}}) {
    out.push_back(
        {name, profile::dry_run(transformer::make_gpt2<bfloat16>(c), job_of(1024, 1, 1.0F))});
  }
  for (auto const& [name, c] :
       std::vector<std::pair<char const*, model::llama_config>>{{"Llama-3-8B",
                                                                 {.layers = 32,
                                                                  .hidden = 4096,
                                                                  .heads = 32,
                                                                  .key_heads = 8,
                                                                  .inner = 14'336,
                                                                  .vocabulary = 128'256,
                                                                  .positions = 8192}},
                                                                {"Llama-3.2-1B",
                                                                 {.layers = 16,
                                                                  .hidden = 2048,
                                                                  .heads = 32,
                                                                  .key_heads = 8,
                                                                  .inner = 8192,
                                                                  .vocabulary = 128'256,
                                                                  .positions = 8192,
                                                                  .tied = true}}}) {
    out.push_back(
        {name, profile::dry_run(transformer::make_llama<bfloat16>(c), job_of(4096, 3, 0.0F))});
  }
  return out;
}

plan::plan planned(trace::trace const& t, std::string const& wanted) {
  auto const request = plan::parse(wanted, t.job);
  REQUIRE(request.has_value());
  plan::budget const all{.gpu = {1ULL << 50U}, .host = {1ULL << 50U}};
  auto made = plan::make(t, hw::host_demo(), all, plan::policies<>{}, *request);
  REQUIRE(made.has_value());
  return *std::move(made);
}

/// Takes and returns what a program says, position by position, and lets the ledger count.
device::ledger counted(schedule::program const& p) {
  device::ledger out;
  std::vector<std::size_t> begins(p.allocations.size(), 0);
  std::iota(begins.begin(), begins.end(), std::size_t{0});
  auto ends = begins;
  std::ranges::sort(
      begins, {}, [&](std::size_t i) { return std::pair(p.allocations[i].begin, i); });
  std::ranges::sort(ends, {}, [&](std::size_t i) { return std::pair(p.allocations[i].end, i); });
  auto end = ends.begin();
  auto begin = begins.begin();
  for (std::uint32_t position = 0; position < p.instructions.size(); ++position) {
    for (; end != ends.end() && p.allocations[*end].end <= position; ++end) {
      schedule::allocation const& a = p.allocations[*end];
      out.release(a.where, a.offset, a.bytes, a.what);
    }
    for (; begin != begins.end() && p.allocations[*begin].begin <= position; ++begin) {
      schedule::allocation const& a = p.allocations[*begin];
      out.lease(a.where, a.offset, a.bytes, a.what);
    }
    out.settle();
  }
  return out;
}

void check_against_ledger(schedule::program const& p) {
  device::ledger const ledger = counted(p);
  for (space const where : {space::device, space::host}) {
    device::usage const seen = ledger.usage_of(where);
    schedule::memory_report const said = schedule::memory_of(p, where);
    CHECK(said.peak == seen.peak);
    CHECK(said.at_peak == seen.at_peak);
    CHECK(said.maximum == seen.maximum);
    CHECK(std::accumulate(said.at_peak.begin(), said.at_peak.end(), std::uint64_t{0}) == said.peak);
    for (std::size_t c = 0; c < category_count; ++c) {
      CHECK(said.at_peak[c] <= said.maximum[c]);
    }
  }
}

std::uint64_t elements_of(chunk::layout const& l) {
  std::uint64_t sum = 0;
  for (chunk::chunk const& c : l.chunks) {
    sum += c.elements;
  }
  return sum;
}

std::uint64_t saved_by_all(trace::trace const& t) {
  std::uint64_t sum = 0;
  for (shape_id const s : t.blocks) {
    sum += t.shapes[s.index()].saved.value;
  }
  return sum;
}

std::uint64_t most_scratch(trace::trace const& t) {
  std::uint64_t most = 0;
  for (trace::block_shape const& s : t.shapes) {
    most = std::max({most, s.scratch_forward.value, s.scratch_backward.value});
  }
  return most;
}

}  // namespace

TEST_CASE("estimator forgets categories: a ledger counts the same, in each of them") {
  for (subject const& s : subjects()) {
    CAPTURE(s.name);
    for (std::string const wanted : {"keep_all",
                                     "offload_all",
                                     "checkpoint_all",
                                     "persist=3,buffer=4,swap=3,checkpoint=5,interval=2",
                                     "persist=1:,buffer=3,checkpoint=2,defer=2"}) {
      CAPTURE(wanted);
      plan::plan const p = planned(s.facts, wanted);
      std::uint64_t peak = 0;
      auto const programs = p.segments();
      REQUIRE(programs.has_value());
      for (schedule::program const& program : *programs) {
        check_against_ledger(program);
        peak = std::max(peak, schedule::memory_of(program, space::device).peak);
      }
      CHECK(p.predicted.device.peak == peak);
    }
  }
}

TEST_CASE("estimator forgets categories: sums by hand") {
  for (subject const& s : subjects()) {
    CAPTURE(s.name);
    plan::plan const kept = planned(s.facts, "keep_all");
    std::uint64_t const n = elements_of(kept.layout);
    auto const& most = kept.predicted.device.maximum;
    CHECK(most[at(category::parameters)] == 2 * n);
    CHECK(most[at(category::optimizer)] == 10 * n);
    CHECK(most[at(category::activations)] == saved_by_all(s.facts));
    CHECK(most[at(category::scratch)] == most_scratch(s.facts));
    CHECK(most[at(category::parameter_buffers)] == 0);
    std::uint64_t const store = s.facts.job.accumulate > 1 ? 4 * n : 2 * n;
    CHECK(most[at(category::gradients)] >= store);

    plan::plan const away = planned(s.facts, "offload_all");
    std::uint64_t const all = elements_of(away.layout);
    CHECK(away.predicted.device.maximum[at(category::parameters)] == 0);
    CHECK(away.predicted.device.maximum[at(category::optimizer)] == 0);
    CHECK(away.predicted.device.maximum[at(category::parameter_buffers)] > 0);
    CHECK(away.predicted.host.maximum[at(category::parameters)] == 2 * all);
    CHECK(away.predicted.host.maximum[at(category::optimizer)] == 10 * all);

    plan::plan const swapping =
        planned(s.facts, "persist=999,buffer=0,swap=2,checkpoint=0,interval=1");
    trace::block_shape const& body = s.facts.shapes[s.facts.blocks[1].index()];
    CHECK(swapping.predicted.host.maximum[at(category::swapped)] == 2 * body.saved.value);
  }
}

TEST_CASE("operators nobody has written save what the written blocks save") {
  model::job const job = job_of(512, 1, 0);
  auto const layer = [](trace::trace const& t) { return t.shape(block_id{1}); };
  auto const eager = [&](model::decoder_config const& c) {
    return trace::analytic(c, job, hw::h200x1(), {.attention = model::attention_kind::eager});
  };
  auto const check = [&](trace::trace const& written, trace::trace const& said) {
    CHECK(said.parameters == written.parameters);
    CHECK(said.blocks.size() == written.blocks.size());
    CHECK(said.batch == written.batch);
    CHECK(layer(said).saved == layer(written).saved);
    CHECK(layer(said).input == layer(written).input);
    CHECK(layer(said).output == layer(written).output);
    REQUIRE(layer(said).levels.size() == layer(written).levels.size());
    for (std::size_t k = 0; k < layer(said).levels.size(); ++k) {
      CHECK(layer(said).levels[k].saved == layer(written).levels[k].saved);
      CHECK(layer(said).levels[k].rebuilt == layer(written).levels[k].rebuilt);
    }
  };
  model::gpt2_config const gpt2{.layers = 2, .hidden = 256, .heads = 4, .inner = 1024};
  check(profile::dry_run(transformer::make_gpt2<bfloat16>(gpt2), job),
        eager(model::decoder_of(gpt2)));
  model::llama_config const llama{
      .layers = 2, .hidden = 256, .heads = 8, .key_heads = 2, .inner = 704, .vocabulary = 1000};
  check(profile::dry_run(transformer::make_llama<bfloat16>(llama), job),
        eager(model::decoder_of(llama)));
}

}  // namespace estimator_test
