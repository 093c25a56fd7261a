// SPDX-License-Identifier: Apache-2.0
// The library's own arithmetic on chunk memory: stores, sums, norms, updates and masters, with the
// padding between tensors left alone.

#include "protrain/runtime/kernels.hpp"

#include "protrain/core/bfloat16.hpp"
#include "protrain/optim/adamw.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using namespace protrain;

/// Two tensors of 130 and 7 elements; 256 + 128 elements with padding.
chunk::chunk two_tensors() {
  return {.elements = 384,
          .payload = 137,
          .tensors = {{parameter_id{0}, 0, 130}, {parameter_id{1}, 256, 7}},
          .blocks = {}};
}

bool is_padding(std::size_t i) { return (i >= 130 && i < 256) || i >= 263; }

template <class T>
struct array {
  explicit array(T fill) : values(384, fill) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(values.data()); }
  std::vector<T> values;
};

schedule::gradient_span span_of(bool first) {
  return {.tensors = {{.tensor = 0, .first = true}, {.tensor = 1, .first = first}}};
}

template <class T>
T of(float x) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat16(x);
  } else {
    return x;
  }
}

template <class T>
void sums_in_fp32(dtype type) {
  array<float> store(-1.0F);
  std::vector<float> const contributions{1, 0x1p-9F, 0x1p-9F, 0x1p-9F};
  for (std::size_t m = 0; m < contributions.size(); ++m) {
    array<T> g(of<T>(contributions[m]));
    runtime::accumulate(
        span_of(true), two_tensors(), m == 0, type, dtype::f32, g.data(), store.data());
  }
  for (std::size_t i = 0; i < 384; ++i) {
    REQUIRE(store.values[i] == (is_padding(i) ? -1 : 1 + 3 * 0x1p-9F));
  }
}

TEST_CASE("contributions are stored first, then added in fp32; padding isn't touched") {
  sums_in_fp32<float>(dtype::f32);
  sums_in_fp32<bfloat16>(dtype::bf16);
}

TEST_CASE("a later use of a tied tensor is added even in the first micro-batch") {
  array<float> store(40.0F);
  array<float> g(2.0F);
  runtime::accumulate(
      span_of(false), two_tensors(), true, dtype::f32, dtype::f32, g.data(), store.data());
  CHECK(store.values[0] == 2);
  CHECK(store.values[256] == 42);
}

TEST_CASE("a single contribution is kept in its own dtype") {
  array<bfloat16> store(of<bfloat16>(9.0F));
  array<bfloat16> g(of<bfloat16>(0.3F));
  runtime::accumulate(
      span_of(true), two_tensors(), true, dtype::bf16, dtype::bf16, g.data(), store.data());
  for (std::size_t i = 0; i < 384; ++i) {
    REQUIRE(to_float(store.values[i]) == to_float(of<bfloat16>(is_padding(i) ? 9.0F : 0.3F)));
  }
}

template <class T>
void counts_no_padding(dtype type) {
  array<T> g(of<T>(3.0F));
  for (std::size_t i = 0; i < 384; ++i) {
    g.values[i] = is_padding(i) ? of<T>(std::nanf("")) : g.values[i];
  }
  optim::exact_sum sum;
  std::byte cell[schedule::norm_cell_bytes];
  std::memcpy(cell, &sum, sizeof sum);
  runtime::add_norm(
      two_tensors(), {.gradient = g.data(), .gradient_type = type, .elements = 384}, cell);
  runtime::add_norm(
      two_tensors(), {.gradient = g.data(), .gradient_type = type, .elements = 384}, cell);
  std::memcpy(&sum, cell, sizeof sum);
  CHECK(optim::norm(sum) == static_cast<float>(std::sqrt(2 * 9.0 * 137)));
}

TEST_CASE("the norm adds up over chunks and never counts padding") {
  counts_no_padding<float>(dtype::f32);
  counts_no_padding<bfloat16>(dtype::bf16);
}

TEST_CASE("masters survive every state format bit by bit; a frozen bf16 tensor is rounded") {
  test::random_source dice(3);
  std::vector<float> values;
  for (int i = 0; i < 130; ++i) {
    auto const bits = static_cast<std::uint32_t>(dice.next());
    bool const finite = (bits & 0x7F800000U) != 0x7F800000U;
    values.push_back(std::bit_cast<float>(finite ? bits : bits & 0xBFFFFFFFU));
  }
  for (auto const format : {model::state_format::fp32, model::state_format::split_master}) {
    array<float> value(5.0F);
    array<double> state(7.0);
    runtime::chunk_arrays const a{.value = value.data(), .state = state.data(), .elements = 384};
    chunk::placed_tensor const t{parameter_id{0}, 128, 130};
    runtime::write_master(format, values.data(), t, a);
    std::vector<float> back(130);
    runtime::read_master(format, back.data(), t, a);
    CHECK(std::memcmp(back.data(), values.data(), 130 * sizeof(float)) == 0);
  }
  array<bfloat16> value(of<bfloat16>(0));
  runtime::chunk_arrays const frozen{.value = value.data(), .elements = 384};
  chunk::placed_tensor const t{parameter_id{0}, 0, 130};
  runtime::write_master(model::state_format::split_master, values.data(), t, frozen);
  std::vector<float> back(130);
  runtime::read_master(model::state_format::split_master, back.data(), t, frozen);
  for (std::size_t i = 0; i < back.size(); ++i) {
    REQUIRE(std::bit_cast<std::uint32_t>(back[i]) ==
            std::bit_cast<std::uint32_t>(to_float(to_bfloat16(values[i]))));
  }
}

TEST_CASE("an update of a tensor in a chunk is the update of the tensor alone") {
  for (auto const format : {model::state_format::fp32, model::state_format::split_master}) {
    bool const split = format == model::state_format::split_master;
    array<float> value(0.0F);
    std::vector<std::byte> state(384 * 12, std::byte{0});
    array<float> g(0.0F);
    for (std::size_t i = 0; i < 384; ++i) {
      g.values[i] = static_cast<float>(i) * 0.01F - 1;
    }
    runtime::chunk_arrays const a{
        .value = value.data(), .state = state.data(), .gradient = g.data(), .elements = 384};
    optim::adamw const rule;
    std::vector<float> p(130, 0.5F);
    std::vector<float> m(130, 0.0F);
    std::vector<float> v(130, 0.0F);
    chunk::placed_tensor const t{parameter_id{0}, 128, 130};
    runtime::write_master(format, p.data(), t, a);
    for (std::int64_t step = 1; step <= 3; ++step) {
      auto const with = rule.prepare(1e-2, step, true);
      runtime::update_tensor<optim::adamw>(format, with, 0.5F, t, a);
      optim::update_fp32(with, 0.5F, g.values.data() + 128, p.data(), m.data(), v.data(), 130);
    }
    std::vector<float> back(130);
    runtime::read_master(format, back.data(), t, a);
    CHECK(std::memcmp(back.data(), p.data(), 130 * sizeof(float)) == 0);
    // Nothing beside the tensor's own elements was touched: value, low halves, m and v.
    std::uint64_t outside = 0;
    for (std::size_t i = 0; i < 384; ++i) {
      bool const own = i >= 128 && i < 258;
      std::size_t const skip = split ? 2 * 384U : 0U;
      for (std::size_t k = 0; !own && k < 4; ++k) {
        outside += state[skip + 4 * i + k] != std::byte{0} ? 1U : 0U;
        outside += state[skip + 4 * (384 + i) + k] != std::byte{0} ? 1U : 0U;
      }
      for (std::size_t k = 0; split && !own && k < 2; ++k) {
        outside += state[2 * i + k] != std::byte{0} ? 1U : 0U;
      }
    }
    CHECK(outside == 0);
  }
}

}  // namespace
