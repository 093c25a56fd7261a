// SPDX-License-Identifier: Apache-2.0
// A real network on the standalone owner: gradients against differences, the block law, splits of
// the batch, memory as the dry pass said.

#include "test/support/mlp.hpp"

#include "protrain/block/standalone.hpp"
#include "test/support/plain_run.hpp"
#include "test/unit/block/support.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace mlp_test {

namespace {

using protrain::bfloat16;
using protrain::block_id;
using protrain::dtype;
using protrain::make_id;
using protrain::parameter_id;
using protrain::tensor_view;
using protrain::block::standalone;
using protrain::block::standalone_options;
using protrain::block::table;
using protrain::model::job;
using protrain::test::make_mlp;
using protrain::test::mlp_config;
using protrain::test::plain_result;
using protrain::test::plain_step;

void set(tensor_view const& t, std::uint64_t i, float x) {
  if (t.type == dtype::bf16) {
    t.as<bfloat16>()[i] = protrain::to_bfloat16(x);
  } else {
    t.as<float>()[i] = x;
  }
}

void initialise(standalone& owner, table const& t, std::uint64_t seed) {
  for (std::size_t p = 0; p < t.parameters.size(); ++p) {
    tensor_view const v = owner.value(make_id<parameter_id>(p));
    auto const draws =
        protrain::initial_stream(seed, protrain::hash_name(t.parameters[p].name.view()));
    for (std::uint64_t i = 0; i < v.elements(); ++i) {
      set(v, i, 0.4F * draws.normal(i));
    }
  }
}

/// Features and targets as a function of the global sample.
struct data {
  job j;
  std::uint64_t step = 0;

  void operator()(standalone& owner, std::uint64_t m) const {
    std::uint64_t const first = (step * j.accumulate + m) * j.micro_batch;
    for (char const* const name : {"features", "targets"}) {
      tensor_view const t = owner.batch(name);
      std::uint64_t const per_sample = t.elements() / j.micro_batch;
      auto const draws = protrain::initial_stream(7, protrain::hash_name(name));
      for (std::uint64_t i = 0; i < t.elements(); ++i) {
        t.as<float>()[i] = draws.normal(first * per_sample + i);
      }
    }
  }
};

template <class T>
plain_result one_step(mlp_config const& c,
                      job const& j,
                      standalone_options const& options = {},
                      bool recompute = false) {
  auto const model = make_mlp<T>(c);
  table const t = model.entries(j);
  standalone owner(t, j, options);
  initialise(owner, t, j.seed);
  return plain_step(owner, t, j, 0, data{j}, recompute);
}

double sum(std::vector<float> const& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

constexpr mlp_config plain{};
constexpr mlp_config tied{.tied = true};
constexpr job fp32{.micro_batch = 4, .sequence = 2, .accumulate = 2, .dropout = 0.25F};
constexpr job bf16{
    .micro_batch = 4, .sequence = 2, .accumulate = 2, .type = dtype::bf16, .dropout = 0.25F};

}  // namespace

TEST_CASE("gradients agree with differences of the loss") {
  for (mlp_config const& c : {plain, tied}) {
    auto const model = make_mlp<float>(c);
    table const t = model.entries(fp32);
    standalone owner(t, fp32);
    initialise(owner, t, 3);
    data const load{fp32};
    plain_result const at = plain_step(owner, t, fp32, 0, load);
    for (std::size_t p = 0; p < t.parameters.size(); ++p) {
      tensor_view const v = owner.value(make_id<parameter_id>(p));
      REQUIRE(at.gradients[p].size() == v.elements());
      for (std::uint64_t i = 0; i < v.elements(); i += 3) {
        float const old = v.as<float>()[i];
        auto const loss = [&](float x) {
          v.as<float>()[i] = x;
          return sum(plain_step(owner, t, fp32, 0, load).losses) /
                 static_cast<double>(tokens_per_step(fp32));
        };
        float const h = 1.0F / 128;
        double const difference = (loss(old + h) - loss(old - h)) / (2.0 * h);
        v.as<float>()[i] = old;
        CHECK(static_cast<double>(at.gradients[p][i]) == doctest::Approx(difference).epsilon(0.02));
      }
    }
  }
}

TEST_CASE_TEMPLATE("addresses, old contents and recomputation change no bit", T, float, bfloat16) {
  job const j = protrain::block::dtype_of<T> == dtype::f32 ? fp32 : bf16;
  for (mlp_config const& c : {plain, tied}) {
    plain_result const expected = one_step<T>(c, j);
    REQUIRE(std::isfinite(sum(expected.losses)));
    CHECK(one_step<T>(c, j, {.fill = 0xFF}) == expected);
    CHECK(one_step<T>(c, j, {.fill = 0x3F, .shift = 5}) == expected);
    CHECK(one_step<T>(c, j, {.fill = 0xFF, .shift = 1}, true) == expected);
  }
}

TEST_CASE("losses don't depend on how samples are split into micro-batches") {
  job other = fp32;
  other.micro_batch = 2;
  other.accumulate = 4;
  plain_result const a = one_step<float>(plain, fp32);
  plain_result const b = one_step<float>(plain, other);
  CHECK(a.losses == b.losses);
  job wet = fp32;
  wet.dropout = 0;
  CHECK(one_step<float>(plain, wet).losses != a.losses);
}

TEST_CASE("fewer samples than planned give the bits of a smaller plan") {
  auto const losses = [](std::uint64_t capacity) {
    job j = fp32;
    j.micro_batch = capacity;
    auto const model = make_mlp<float>(plain);
    table const t = model.entries(j);
    standalone owner(t, j, {.fill = 0xFF});
    initialise(owner, t, 1);
    data{j}(owner, 0);
    owner.begin({.step = 3, .first_sample = 11, .samples = 2, .loss_scale = 0.5F});
    owner.forward();
    owner.backward();
    std::vector<float> out(owner.losses().begin(), owner.losses().end());
    tensor_view const g = owner.contribution(block_id{1}, {0});
    out.insert(out.end(), g.as<float>(), g.as<float>() + g.elements());
    return out;
  };
  CHECK(losses(2).size() == 102);
  CHECK(losses(2) == losses(4));
}

TEST_CASE("an evaluation drops nothing") {
  auto const model = make_mlp<float>(plain);
  job dry = fp32;
  dry.dropout = 0;
  auto const losses = [&](job const& j, protrain::block::pass p) {
    table const t = model.entries(j);
    standalone owner(t, j);
    initialise(owner, t, 1);
    data{j}(owner, 0);
    owner.forward(p);
    return std::vector<float>(owner.losses().begin(), owner.losses().end());
  };
  using protrain::block::pass;
  CHECK(losses(fp32, pass::evaluate) == losses(dry, pass::forward));
  CHECK(losses(fp32, pass::forward) != losses(dry, pass::forward));
}

TEST_CASE_TEMPLATE("blocks take exactly the memory that the dry pass said", T, float, bfloat16) {
  job const j = protrain::block::dtype_of<T> == dtype::f32 ? fp32 : bf16;
  auto const model = make_mlp<T>(plain);
  table const t = model.entries(j);
  standalone owner(t, j);
  initialise(owner, t, 1);
  plain_step(owner, t, j, 0, data{j}, true);
  for (std::size_t b = 0; b < t.blocks.size(); ++b) {
    auto const& need = owner.need(make_id<block_id>(b));
    auto const& used = owner.used(make_id<block_id>(b));
    CHECK(need.saved == used.saved);
    CHECK(need.slots == used.slots);
    CHECK(need.scratch_forward == used.scratch_forward);
    CHECK(need.scratch_backward == used.scratch_backward);
    CHECK(need.operators.size() == (b == 0 || b + 1 == t.blocks.size() ? 1 : 2));
  }
}

TEST_CASE("it learns") {
  job j = fp32;
  j.dropout = 0;
  auto const model = make_mlp<float>(tied);
  table const t = model.entries(j);
  standalone owner(t, j);
  initialise(owner, t, 1);
  double first = 0;
  double last = 0;
  for (int step = 0; step < 60; ++step) {
    plain_result const r = plain_step(owner, t, j, 0, data{j});
    last = sum(r.losses);
    first = step == 0 ? last : first;
    for (std::size_t p = 0; p < t.parameters.size(); ++p) {
      tensor_view const v = owner.value(make_id<parameter_id>(p));
      for (std::uint64_t i = 0; i < v.elements(); ++i) {
        v.as<float>()[i] -= 0.1F * r.gradients[p][i];
      }
    }
  }
  CHECK(last < 0.5 * first);
}

TEST_CASE("contributions of a tied weight are kept apart by use") {
  auto const model = make_mlp<float>(tied);
  table const t = model.entries(fp32);
  CHECK(t.parameters[0].uses == std::vector<block_id>{block_id{0}, block_id{4}});
  standalone owner(t, fp32);
  initialise(owner, t, 1);
  data{fp32}(owner, 0);
  owner.forward();
  owner.backward();
  tensor_view const early = owner.contribution(block_id{0}, {0});
  tensor_view const late = owner.contribution(block_id{4}, {0});
  CHECK(early.data != late.data);
  CHECK(early.as<float>()[0] != 0);
  CHECK(late.as<float>()[0] != 0);
}

}  // namespace mlp_test
