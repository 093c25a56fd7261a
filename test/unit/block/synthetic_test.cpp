// SPDX-License-Identifier: Apache-2.0
// The synthetic blocks keep their promises: a trace's bytes exactly, and bits that depend on every
// byte they read and on nothing else.

#include "test/support/synthetic.hpp"

#include "protrain/block/standalone.hpp"
#include "protrain/profile/dry_run.hpp"
#include "test/support/plain_run.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace synthetic_test {

namespace {

using protrain::block_id;
using protrain::make_id;
using protrain::parameter_id;
using protrain::tensor_view;
using protrain::block::standalone;
using protrain::block::standalone_options;
using protrain::block::table;
using protrain::test::plain_result;
using protrain::test::random_source;
using protrain::test::synthetic_model;
namespace trace = protrain::trace;

void fill(tensor_view const& t, std::uint64_t seed) {
  random_source r(seed);
  for (std::uint64_t i = 0; i < t.bytes(); ++i) {
    t.raw()[i] = static_cast<std::byte>(r.next());
  }
}

/// A step of a model whose inputs are random; `spoil(owner)` may change them first.
template <class Spoil>
plain_result step(synthetic_model const& model,
                  Spoil const& spoil,
                  standalone_options const& options = {},
                  bool recompute = false) {
  auto const& job = model.facts().job;
  table const t = model.entries(job);
  standalone owner(t, job, options);
  for (std::size_t p = 0; p < t.parameters.size(); ++p) {
    fill(owner.value(make_id<parameter_id>(p)), p);
  }
  auto const load = [&](standalone& o, std::uint64_t m) {
    if (!t.batch.empty()) {
      fill(o.batch("batch"), 1000 + m);
    }
    spoil(o, m);
  };
  return protrain::test::plain_step(owner, t, job, 1, load, recompute);
}

plain_result step(synthetic_model const& model,
                  standalone_options const& options = {},
                  bool recompute = false) {
  return step(model, [](standalone&, std::uint64_t) {}, options, recompute);
}

bool finite(plain_result const& r) {
  bool good = true;
  for (float const x : r.losses) {
    good = good && std::isfinite(x);
  }
  for (auto const& g : r.gradients) {
    for (float const x : g) {
      good = good && std::isfinite(x) && std::fabs(x) < 64;
    }
  }
  return good;
}

}  // namespace

TEST_CASE("a dry run gives the trace back, for random traces") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    trace::trace const facts = protrain::test::make_case(seed).facts;
    trace::trace const dry =
        protrain::profile::dry_run(synthetic_model(facts).entries(facts.job), facts.job);
    REQUIRE(trace::fingerprint(dry) == trace::fingerprint(facts));
    REQUIRE(dry.parameters == facts.parameters);
    REQUIRE(dry.batch == facts.batch);
  }
}

TEST_CASE("bits depend on no address, no old contents and no recomputation") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    synthetic_model const model(protrain::test::make_case(seed).facts);
    plain_result const expected = step(model);
    REQUIRE(finite(expected));
    REQUIRE(step(model, {.fill = 0xFF, .shift = 3}) == expected);
    REQUIRE(step(model, {.fill = 0x5A}, true) == expected);
  }
}

TEST_CASE("one changed byte of a parameter or batch tensor changes the losses") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    trace::trace const facts = protrain::test::make_case(seed).facts;
    synthetic_model const model(facts);
    plain_result const expected = step(model);
    random_source r(seed);
    auto const flip = [&](tensor_view const& t) {
      if (!t.empty()) {
        t.raw()[r.between(0, t.bytes() - 1)] ^= std::byte{1};
      }
      return !t.empty();
    };
    for (std::size_t p = 0; p < facts.parameters.size(); ++p) {
      bool flipped = false;
      plain_result const other = step(model, [&](standalone& o, std::uint64_t m) {
        flipped = flipped || (m == 0 && flip(o.value(make_id<parameter_id>(p))));
      });
      REQUIRE((other.losses != expected.losses) == flipped);
    }
    if (facts.batch.count() > 0) {
      plain_result const other =
          step(model, [&](standalone& o, std::uint64_t) { flip(o.batch("batch")); });
      REQUIRE(other.losses != expected.losses);
    }
  }
}

TEST_CASE("backward depends on each saved byte, x, dy, loss scale and place in the job") {
  trace::trace facts{};
  facts.job = {.micro_batch = 2, .sequence = 4};
  facts.shapes = {
      {.name = "first", .output = {40}},
      {.name = "middle", .input = {40}, .output = {24}, .saved = {1024}, .scratch_backward = {512}},
      {.name = "last", .input = {24}}};
  facts.blocks = {{0}, {1}, {2}};
  facts.parameters = {{.name = "w", .shape = {3}, .uses = {block_id{1}}}};
  synthetic_model const model(facts);
  table const t = model.entries(facts.job);
  constexpr block_id middle{1};

  auto const run = [&](auto spoil, protrain::block::micro_batch const& m) {
    standalone owner(t, facts.job);
    owner.begin(m);
    owner.forward();
    owner.backward(block_id{2});
    spoil(owner);
    owner.backward(middle);
    std::vector<std::byte> bits(52);
    std::memcpy(bits.data(), owner.output_gradient(block_id{0}).data, 40);
    std::memcpy(bits.data() + 40, owner.contribution(middle, {0}).data, 12);
    return bits;
  };
  auto const none = [](standalone&) {};
  auto const expected = run(none, {});
  auto const flip = [](void const* data, std::size_t at) {
    const_cast<std::byte*>(static_cast<std::byte const*>(data))[at] ^= std::byte{0x80};
  };
  CHECK(run(none, {}) == expected);
  for (std::size_t const at : {0U, 508U, 512U, 763U, 768U, 1023U}) {
    CAPTURE(at);
    CHECK(run([&](standalone& o) { flip(o.saved(middle).data(), at); }, {}) != expected);
  }
  CHECK(run([&](standalone& o) { flip(o.output(block_id{0}).data, 39); }, {}) != expected);
  CHECK(run([&](standalone& o) { flip(o.output_gradient(middle).data, 23); }, {}) != expected);
  CHECK(run(none, {.step = 1}) != expected);
  CHECK(run(none, {.first_sample = 1}) != expected);
  CHECK(run(none, {.loss_scale = 0.5F}) != expected);
}

TEST_CASE("small gradients are exact in every dtype") {
  random_source r(5);
  for (int i = 0; i < 20000; ++i) {
    float const g = protrain::test::detail::small_float(r.next());
    REQUIRE(protrain::to_float(protrain::to_bfloat16(g)) == g);
    std::uint16_t const half = protrain::test::detail::exact_half(g);
    auto const exponent = static_cast<int>((half >> 10U) & 31U);
    auto const mantissa = static_cast<float>(half & 1023U);
    float const value =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
    REQUIRE((half >> 15U != 0 ? -value : value) == g);
  }
}

}  // namespace synthetic_test
