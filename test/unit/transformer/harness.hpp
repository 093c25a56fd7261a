// SPDX-License-Identifier: Apache-2.0
#pragma once
// One examination for every kernel: gradients against central differences in fp64, float and bfloat16
// against fp64, the same bits at other addresses and over other garbage, no write outside.

#include "examples/transformer/simd.hpp"
#include <protrain/core/philox.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

namespace transformer::harness {

inline double to_double(double x) { return x; }
inline double to_double(bfloat16 x) { return static_cast<double>(protrain::core::to_float(x)); }

template <class T>
T from_double(double x) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return protrain::core::to_bfloat16(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

/// Hands out tensors aligned to 256 bytes, `shift` x 256 bytes into a page, full of `garbage`, with
/// a guard behind each.
class memory {
 public:
  explicit memory(std::size_t shift = 0, unsigned char garbage = 0xFF)
      : shift_(shift), garbage_(garbage) {}

  template <class T>
  T* make(length n) {
    std::size_t const bytes = static_cast<std::size_t>(n) * sizeof(T);
    std::size_t const total = shift_ * 256 + bytes + guard;
    blocks_.push_back(
        {storage(static_cast<unsigned char*>(::operator new(total, std::align_val_t{4096}))),
         shift_ * 256,
         bytes});
    unsigned char* const first = blocks_.back().data.get() + shift_ * 256;
    std::memset(first, garbage_, bytes);
    std::memset(first + bytes, mark, guard);
    return reinterpret_cast<T*>(first);
  }

  template <class T>
  T* put(std::vector<double> const& values) {
    T* const first = make<T>(static_cast<length>(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      first[i] = from_double<T>(values[i]);
    }
    return first;
  }

  bool guards_intact() const {
    for (auto const& b : blocks_) {
      for (std::size_t i = 0; i < guard; ++i) {
        if (b.data.get()[b.offset + b.bytes + i] != mark) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  struct release {
    void operator()(unsigned char* p) const { ::operator delete(p, std::align_val_t{4096}); }
  };
  using storage = std::unique_ptr<unsigned char, release>;
  struct block {
    storage data;
    std::size_t offset;
    std::size_t bytes;
  };
  static constexpr std::size_t guard = 64;
  static constexpr unsigned char mark = 0xA5;

  std::size_t shift_;
  unsigned char garbage_;
  std::vector<block> blocks_;
};

using arrays = std::vector<std::vector<double>>;

template <class T>
std::vector<double> values_of(T const* from, length n) {
  std::vector<double> out;
  for (length i = 0; i < n; ++i) {
    out.push_back(to_double(from[i]));
  }
  return out;
}

/// Uniform in centre +- radius, exact in bfloat16.
inline std::vector<double> random_values(length n,
                                         std::string_view name,
                                         double radius = 1,
                                         double centre = 0) {
  auto const stream = protrain::core::initial_stream(1, protrain::core::hash_name(name));
  std::vector<double> out;
  for (length i = 0; i < n; ++i) {
    double const u = static_cast<double>(stream.uniform(static_cast<std::uint64_t>(i)));
    out.push_back(to_double(from_double<bfloat16>(centre + radius * (2 * u - 1))));
  }
  return out;
}

/// Outputs, and the gradient of sum outputs x weights for each input (empty: not differentiable).
struct outcome {
  arrays outputs;
  arrays gradients;
};

inline double weighted_sum(arrays const& outputs, arrays const& weights) {
  double sum = 0;
  REQUIRE(outputs.size() == weights.size());
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    REQUIRE(outputs[k].size() == weights[k].size());
    for (std::size_t i = 0; i < outputs[k].size(); ++i) {
      sum += outputs[k][i] * weights[k][i];
    }
  }
  return sum;
}

inline bool same_bits(arrays const& a, arrays const& b) {
  bool same = a.size() == b.size();
  for (std::size_t k = 0; same && k < a.size(); ++k) {
    same = a[k].size() == b[k].size() &&
           (a[k].empty() || std::memcmp(a[k].data(), b[k].data(), a[k].size() * 8) == 0);
  }
  return same;
}

/// Largest distance, relative to each array's largest magnitude.
inline double relative_distance(arrays const& a, arrays const& b) {
  double worst = 0;
  REQUIRE(a.size() == b.size());
  for (std::size_t k = 0; k < a.size(); ++k) {
    double largest = 1e-30;
    double distance = 0;
    REQUIRE(a[k].size() == b[k].size());
    for (std::size_t i = 0; i < a[k].size(); ++i) {
      largest = std::max(largest, std::abs(b[k][i]));
      double const d = std::abs(a[k][i] - b[k][i]);
      distance = d <= distance ? distance : d;  // a NaN stays
    }
    double const r = distance / largest;
    worst = r <= worst ? worst : r;
  }
  return worst;
}

/// `run.template operator()<T>(memory&, inputs, weights)` is the kernel under examination. Of every
/// array each `every`-th element is tried.
template <class Run>
void check_gradients(Run const& run, arrays inputs, arrays const& weights, std::size_t every = 1) {
  memory m;
  auto const reference = run.template operator()<double>(m, inputs, weights);
  CHECK(m.guards_intact());
  auto const loss = [&] {
    memory fresh;
    return weighted_sum(run.template operator()<double>(fresh, inputs, weights).outputs, weights);
  };
  double worst = 0;
  length checked = 0;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    auto const& gradient = reference.gradients[k];
    for (std::size_t i = 0; i < gradient.size(); i += every, ++checked) {
      double const old = inputs[k][i];
      double const h = 0x1p-10;
      auto const at = [&](double steps) {
        inputs[k][i] = old + steps * h;
        return loss();
      };
      double const slope = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * h);
      inputs[k][i] = old;
      double const error = std::abs(slope - gradient[i]) / (std::abs(slope) + 1e-2);
      CHECK_MESSAGE(error < 1e-6, "input ", k, " element ", i, ": ", gradient[i], " but ", slope);
      worst = error <= worst ? worst : error;
    }
  }
  CHECK(checked > 0);
  MESSAGE("gradients checked: ", checked, ", worst error ", worst);
}

template <class T, class Run>
void check_close(Run const& run, arrays const& inputs, arrays const& weights, double bound) {
  memory m;
  memory n;
  auto const exact = run.template operator()<double>(m, inputs, weights);
  auto const here = run.template operator()<T>(n, inputs, weights);
  CHECK(n.guards_intact());
  CHECK(relative_distance(here.outputs, exact.outputs) < bound);
  CHECK(relative_distance(here.gradients, exact.gradients) < bound);
}

template <class T, class Run>
void check_addresses(Run const& run, arrays const& inputs, arrays const& weights) {
  memory m;
  auto const reference = run.template operator()<T>(m, inputs, weights);
  for (std::size_t const shift : {1U, 2U, 3U, 7U, 13U}) {
    memory other{shift, static_cast<unsigned char>(shift)};
    auto const again = run.template operator()<T>(other, inputs, weights);
    CHECK(same_bits(again.outputs, reference.outputs));
    CHECK(same_bits(again.gradients, reference.gradients));
  }
}

/// Everything, for a small case.
template <class Run>
void examine(Run const& run, arrays const& inputs, arrays const& weights, double bfloat16_bound) {
  check_gradients(run, inputs, weights);
  check_close<float>(run, inputs, weights, 1e-5);
  check_close<bfloat16>(run, inputs, weights, bfloat16_bound);
  check_addresses<float>(run, inputs, weights);
  check_addresses<bfloat16>(run, inputs, weights);
}

}  // namespace transformer::harness
