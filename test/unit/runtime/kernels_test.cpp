// SPDX-License-Identifier: Apache-2.0
// The library's own arithmetic on chunk memory: stores, sums, norms, updates and masters, with the
// padding between tensors left alone.

#include "protrain/runtime/kernels.hpp"

#include "protrain/core/arithmetic.hpp"
#include "protrain/optim/adamw.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kernels_test {

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
  return narrow<T>(x);
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
  sums_in_fp32<float16>(dtype::f16);
}

TEST_CASE("a later use of a tied tensor is added even in the first micro-batch") {
  array<float> store(40.0F);
  array<float> g(2.0F);
  runtime::accumulate(
      span_of(false), two_tensors(), true, dtype::f32, dtype::f32, g.data(), store.data());
  CHECK(store.values[0] == 2);
  CHECK(store.values[256] == 42);
}

template <class T>
void is_kept(dtype type) {
  array<T> store(of<T>(9.0F));
  array<T> g(of<T>(0.3F));
  runtime::accumulate(span_of(true), two_tensors(), true, type, type, g.data(), store.data());
  for (std::size_t i = 0; i < 384; ++i) {
    REQUIRE(store.values[i] == of<T>(is_padding(i) ? 9.0F : 0.3F));
  }
}

TEST_CASE("a single contribution is kept in its own dtype") {
  is_kept<bfloat16>(dtype::bf16);
  is_kept<float16>(dtype::f16);
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
  counts_no_padding<float16>(dtype::f16);
}

/// Every state format, and what its values are.
struct format {
  model::state_format state;
  dtype type;
  std::uint64_t skip;  // bytes per element before the rule's state
};
constexpr format formats[] = {{model::state_format::fp32, dtype::f32, 0},
                              {model::state_format::split_master, dtype::bf16, 2},
                              {model::state_format::separate_master, dtype::bf16, 4},
                              {model::state_format::separate_master, dtype::f16, 4}};

std::vector<float> any_finite(std::size_t n) {
  test::random_source dice(3);
  std::vector<float> values;
  for (std::size_t i = 0; i < n; ++i) {
    auto const bits = static_cast<std::uint32_t>(dice.next());
    bool const finite = (bits & 0x7F800000U) != 0x7F800000U;
    values.push_back(std::bit_cast<float>(finite ? bits : bits & 0xBFFFFFFFU));
  }
  return values;
}

/// Element i of a chunk's values, as fp32.
float value_at(format const& f, std::byte const* values, std::size_t i) {
  return f.type == dtype::bf16  ? widen(reinterpret_cast<bfloat16 const*>(values)[i])
         : f.type == dtype::f16 ? widen(reinterpret_cast<float16 const*>(values)[i])
                                : reinterpret_cast<float const*>(values)[i];
}

float rounded_to(dtype type, float x) {
  return type == dtype::bf16  ? widen(narrow<bfloat16>(x))
         : type == dtype::f16 ? widen(narrow<float16>(x))
                              : x;
}

TEST_CASE("masters survive every state format bit by bit; the value is the rounded master") {
  std::vector<float> const values = any_finite(130);
  for (format const& f : formats) {
    array<float> value(5.0F);
    array<double> state(7.0);
    runtime::chunk_arrays const a{
        .value = value.data(), .state = state.data(), .value_type = f.type, .elements = 384};
    chunk::placed_tensor const t{parameter_id{0}, 128, 130};
    runtime::write_master(f.state, values.data(), t, a);
    std::vector<float> back(130);
    runtime::read_master(f.state, back.data(), t, a);
    CHECK(std::memcmp(back.data(), values.data(), 130 * sizeof(float)) == 0);
    for (std::size_t i = 0; i < 130; ++i) {
      REQUIRE(value_at(f, value.data(), 128 + i) == rounded_to(f.type, values[i]));
    }
  }
}

TEST_CASE("a frozen tensor of every format is rounded to its value") {
  std::vector<float> const values = any_finite(130);
  for (format const& f : formats) {
    array<float> value(0.0F);
    runtime::chunk_arrays const frozen{
        .value = value.data(), .value_type = f.type, .elements = 384};
    chunk::placed_tensor const t{parameter_id{0}, 0, 130};
    runtime::write_master(f.state, values.data(), t, frozen);
    std::vector<float> back(130);
    runtime::read_master(f.state, back.data(), t, frozen);
    for (std::size_t i = 0; i < back.size(); ++i) {
      REQUIRE(std::bit_cast<std::uint32_t>(back[i]) ==
              std::bit_cast<std::uint32_t>(rounded_to(f.type, values[i])));
    }
  }
}

/// Bytes of a chunk's state that are not zero, outside the 130 elements from 128.
std::uint64_t touched_outside(format const& f, std::vector<std::byte> const& state) {
  std::uint64_t outside = 0;
  for (std::size_t i = 0; i < 384; ++i) {
    bool const own = i >= 128 && i < 258;
    for (std::size_t k = 0; !own && k < f.skip; ++k) {
      outside += state[f.skip * i + k] != std::byte{0} ? 1U : 0U;
    }
    for (std::size_t k = 0; !own && k < 4; ++k) {
      outside += state[f.skip * 384 + 4 * i + k] != std::byte{0} ? 1U : 0U;
      outside += state[f.skip * 384 + 4 * (384 + i) + k] != std::byte{0} ? 1U : 0U;
    }
  }
  return outside;
}

template <class G>
void updates_alone(format const& f, dtype gradient_type) {
  CAPTURE(name_of(f.state));
  array<float> value(0.0F);
  std::vector<std::byte> state(384 * 12, std::byte{0});
  array<G> g(of<G>(0.0F));
  for (std::size_t i = 0; i < 384; ++i) {
    g.values[i] = of<G>(static_cast<float>(i) * 0.01F - 1);
  }
  runtime::chunk_arrays const a{.value = value.data(),
                                .state = state.data(),
                                .gradient = g.data(),
                                .gradient_type = gradient_type,
                                .value_type = f.type,
                                .elements = 384};
  optim::adamw const rule;
  std::vector<float> p(130, 0.5F);
  std::vector<float> m(130, 0.0F);
  std::vector<float> v(130, 0.0F);
  chunk::placed_tensor const t{parameter_id{0}, 128, 130};
  runtime::write_master(f.state, p.data(), t, a);
  for (std::int64_t step = 1; step <= 3; ++step) {
    auto const with = rule.prepare(1e-2, step, true);
    runtime::update_tensor<optim::adamw>(f.state, with, 0.5F, t, a);
    optim::update_fp32(with, 0.5F, g.values.data() + 128, p.data(), m.data(), v.data(), 130);
  }
  std::vector<float> back(130);
  runtime::read_master(f.state, back.data(), t, a);
  CHECK(std::memcmp(back.data(), p.data(), 130 * sizeof(float)) == 0);
  auto const* const arrays = reinterpret_cast<float const*>(state.data() + f.skip * 384);
  CHECK(std::memcmp(arrays + 128, m.data(), 130 * sizeof(float)) == 0);
  CHECK(std::memcmp(arrays + 384 + 128, v.data(), 130 * sizeof(float)) == 0);
  CHECK(touched_outside(f, state) == 0);
  for (std::size_t i = 0; i < 130; ++i) {
    REQUIRE(value_at(f, value.data(), 128 + i) == rounded_to(f.type, p[i]));
  }
}

TEST_CASE("an update of a tensor in a chunk is the update of the tensor alone") {
  for (format const& f : formats) {
    updates_alone<float>(f, dtype::f32);
    updates_alone<bfloat16>(f, dtype::bf16);
    updates_alone<float16>(f, dtype::f16);
  }
}

}  // namespace

}  // namespace kernels_test
