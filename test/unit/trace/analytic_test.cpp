// SPDX-License-Identifier: Apache-2.0
// Analytic traces: the roofline, and that a trace adds up what its operators say.

#include "protrain/trace/analytic.hpp"

#include "protrain/hw/presets.hpp"
#include "protrain/model/adapters.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/model/operations.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace analytic_test {

namespace {

using namespace protrain;

constexpr model::job job{.micro_batch = 2, .sequence = 512, .type = dtype::bf16};

constexpr trace::trace facts(model::operator_style const& style = {}) {
  return trace::analytic(
      {.layers = 4, .hidden = 1024, .heads = 16, .inner = 2816}, job, hw::h200x1(), style);
}

TEST_CASE("the roofline: half of the dense rate at the ridge, nearly all beyond") {
  hw::machine const m = hw::h200x1();
  std::uint64_t const bytes = 1ULL << 30U;
  auto const attained = [&](double intensity) {
    auto const flops = static_cast<std::uint64_t>(intensity * static_cast<double>(bytes));
    double const seconds =
        static_cast<double>(trace::roofline(m, dtype::bf16, flops, bytes).value) * 1e-12;
    return static_cast<double>(flops) / seconds / static_cast<double>(m.compute_half.per_second);
  };
  double const ridge = static_cast<double>(m.compute_half.per_second) /
                       static_cast<double>(m.device_bandwidth.per_second);
  CHECK(attained(ridge) == doctest::Approx(0.5));
  CHECK(attained(9 * ridge) == doctest::Approx(0.9));
  CHECK(attained(ridge / 9) == doctest::Approx(0.1));
}

TEST_CASE("where the memory's rate isn't known, bytes take no time") {
  hw::machine m = hw::h200x1();
  m.device_bandwidth = {};
  CHECK(trace::roofline(m, dtype::bf16, 673'000'000'000'000, 1ULL << 40U) ==
        picoseconds{1'000'000'000'000});
}

TEST_CASE("blocks: an embedding, the layers, a head; sums of their operators") {
  trace::trace const t = facts();
  CHECK(t.from == trace::source::analytic);
  CHECK(t.job == job);
  REQUIRE(t.blocks.size() == 6);
  CHECK(t.parameters.back().uses.back() == block_id{5});
  CHECK(t.batch == bytes{2 * 4096});
  CHECK(t.shape(block_id{1}) == t.shape(block_id{4}));
  CHECK(t.shape(block_id{0}).input == bytes{});
  CHECK_FALSE(t.shape(block_id{0}).reads_input);
  CHECK(t.shape(block_id{5}).output == bytes{});
  CHECK(t.shape(block_id{0}).output == t.shape(block_id{1}).input);
  CHECK(t.shape(block_id{4}).output == t.shape(block_id{5}).input);
  for (trace::block_shape const& s : t.shapes) {
    picoseconds forward{};
    picoseconds backward{};
    bytes saved{};
    for (trace::operator_facts const& o : s.operators) {
      forward += o.forward;
      backward += o.backward;
      saved += o.saved;
      CHECK(o.scratch_peak <= std::max(s.scratch_forward, s.scratch_backward));
    }
    CHECK(s.forward == forward);
    CHECK(s.backward == backward);
    CHECK(s.saved == saved);
    CHECK(s.backward > s.forward);
  }
}

TEST_CASE("levels: each saves less and takes longer to make again, at most all of forward") {
  for (auto const kind : {model::attention_kind::eager, model::attention_kind::fused}) {
    trace::block_shape const layer = facts({.attention = kind}).shape(block_id{1});
    REQUIRE(layer.levels.size() == 2);
    bytes before = layer.saved;
    picoseconds longer{};
    for (trace::save_level const& level : layer.levels) {
      CHECK(level.saved < before);
      CHECK(level.saved + level.rebuilt == layer.saved);
      CHECK(level.rebuild > longer);
      CHECK(level.rebuild < layer.forward);
      CHECK(level.reads_input);
      before = level.saved;
      longer = level.rebuild;
    }
  }
  CHECK(facts().shape(block_id{0}).levels.empty());
}

TEST_CASE("fused attention saves bytes and time; chunked logits save bytes for time") {
  auto const eager = facts({.attention = model::attention_kind::eager});
  CHECK(eager.shape(block_id{1}).saved > facts().shape(block_id{1}).saved);
  CHECK(eager.shape(block_id{1}).forward > facts().shape(block_id{1}).forward);
  auto const chunked = facts({.logit_chunks = 4});
  CHECK(chunked.shape(block_id{5}).saved < facts().shape(block_id{5}).saved);
  CHECK(chunked.shape(block_id{5}).backward > facts().shape(block_id{5}).backward);
  CHECK(fingerprint(chunked) != fingerprint(facts()));
}

trace::trace with_table(std::vector<model::parameter> table) {
  return trace::analytic({.layers = 4, .hidden = 1024, .heads = 16, .inner = 2816},
                         job,
                         hw::h200x1(),
                         {},
                         std::move(table));
}

std::vector<model::parameter> table() {
  return model::decoder_parameters({.layers = 4, .hidden = 1024, .heads = 16, .inner = 2816},
                                   job.type);
}

constexpr auto has(std::string_view part) {
  return [part](std::string_view name) { return name.find(part) != std::string_view::npos; };
}

TEST_CASE("a frozen layer has a shape of its own, and a shorter backward") {
  auto rows = table();
  model::train_only(rows, [](std::string_view name) { return !has("layers.1.")(name); });
  trace::trace const t = with_table(rows);
  CHECK(t.blocks[1] == t.blocks[3]);
  CHECK(t.blocks[1] == t.blocks[4]);
  CHECK(t.blocks[2] != t.blocks[1]);
  CHECK(t.shapes.size() == 4);
  CHECK(t.shape(block_id{2}).backward < t.shape(block_id{1}).backward);
  CHECK(t.shape(block_id{2}).forward == t.shape(block_id{1}).forward);
  CHECK(t.shape(block_id{1}) == facts().shape(block_id{1}));
  CHECK_FALSE(t.parameters[10].trainable);
}

TEST_CASE("a frozen embedding and a frozen head do nothing for their gradients") {
  auto rows = table();
  model::train_only(rows, has("layers."));
  trace::trace const t = with_table(rows);
  CHECK(t.shape(block_id{0}).backward == picoseconds{});
  CHECK(t.shape(block_id{5}).backward < facts().shape(block_id{5}).backward);
  CHECK(t.shape(block_id{5}).backward > picoseconds{});
}

TEST_CASE("adapters of one layer: longer, and more saved, there alone") {
  auto rows = table();
  model::add_adapters(rows, 16, has("layers.2.self_attn.q_proj"));
  trace::trace const t = with_table(rows);
  CHECK(t.blocks[3] != t.blocks[1]);
  CHECK(t.shapes.size() == 4);
  CHECK(t.shape(block_id{3}).saved == t.shape(block_id{1}).saved + bytes{2 * 512 * 16 * 2});
  CHECK(t.shape(block_id{3}).forward > t.shape(block_id{1}).forward);
  CHECK(t.shape(block_id{3}).backward > t.shape(block_id{1}).backward);
  CHECK(t.parameters.size() == table().size() + 2);
}

TEST_CASE("levels of every kind of layer: less saved, more to make again, never all of forward") {
  using model::family;
  model::decoder_config after{.type = family::opt, .layers = 1, .hidden = 256, .heads = 4};
  after.norm_first = false;
  after.relu = true;
  model::decoder_config window{.type = family::mistral, .layers = 1, .hidden = 256, .heads = 4};
  window.window = 64;
  for (model::decoder_config const& c :
       {after,
        window,
        model::decoder_config{.type = family::opt, .layers = 1, .hidden = 256, .heads = 4},
        model::decoder_config{.type = family::qwen3, .layers = 1, .hidden = 256, .heads = 4}}) {
    for (auto const kind : {model::attention_kind::eager, model::attention_kind::fused}) {
      trace::trace const t = trace::analytic(c, job, hw::h200x1(), {.attention = kind});
      trace::block_shape const& layer = t.shape(block_id{1});
      REQUIRE(layer.levels.size() == 2);
      bytes before = layer.saved;
      picoseconds shorter{};
      for (trace::save_level const& level : layer.levels) {
        CHECK(level.saved < before);
        CHECK(level.saved + level.rebuilt == layer.saved);
        CHECK(level.rebuild > shorter);
        CHECK(level.rebuild < layer.forward);
        before = level.saved;
        shorter = level.rebuild;
      }
    }
  }
}

TEST_CASE("making products again turns queries and keys again") {
  trace::block_shape const layer = facts().shape(block_id{1});
  picoseconds rebuilt{};
  for (trace::operator_facts const& o : layer.operators) {
    bool const kept = o.name.view() == "attention" || o.name.view() == "attention_output" ||
                      o.name.view() == "down";
    rebuilt += kept ? picoseconds{} : o.forward;
  }
  CHECK(layer.levels[1].rebuild == rebuilt);
}

constexpr bool constant() { return facts().blocks.size() == 6; }
static_assert(constant(), "a trace can be made in constant evaluation");

}  // namespace

}  // namespace analytic_test
