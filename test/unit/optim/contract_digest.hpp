// SPDX-License-Identifier: Apache-2.0
#pragma once
// One number that stands for the bits of everything this folder computes. It is the same for every
// compiler, flag, instruction set and floating-point environment; the tests compare it with that of
// contract_expected.hpp, so that no two builds need to be linked into one program.

#include "protrain/core/arithmetic.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/optim/accumulate.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/master.hpp"
#include "protrain/optim/norm.hpp"
#include "protrain/optim/scale.hpp"
#include "protrain/optim/sgd.hpp"
#include "protrain/optim/update.hpp"
#include "protrain/optim/vectors.hpp"
#include "test/unit/optim/contract_expected.hpp"
#include "test/unit/optim/support.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace protrain_test {

/// Normal, denormal, zero, infinite and NaN values among `values`.
inline std::vector<float> with_specials(std::vector<float> values) {
  std::uint32_t const specials[] = {0x00000000U,
                                    0x80000000U,
                                    0x00000001U,
                                    0x807FFFFFU,
                                    0x00800000U,
                                    0x7F7FFFFFU,
                                    0x7F800000U,
                                    0xFF800000U,
                                    0xFFC00001U,
                                    0x7F800001U};
  std::size_t at = 0;
  for (std::uint32_t const bits : specials) {
    values[at] = from_bits(bits);
    at += 37;
  }
  return values;
}

/// Hyper-parameters, scales and norms.
inline void add_scalars(digest& d) {
  for (std::int64_t const t : {1, 2, 3, 7, 100, 12345, 1000000}) {
    for (double const lr : {1e-3, 3.3e-5, 0.77}) {
      auto const step =
          protrain::optim::adamw{.beta1 = 0.91, .beta2 = 0.9973, .weight_decay = 0.123}.prepare(
              lr, t, t % 2 != 0);
      for (float const x : {step.a,
                            step.r,
                            step.k,
                            step.b1,
                            step.one_minus_b1,
                            step.b2,
                            step.one_minus_b2,
                            step.eps}) {
        d.add(x);
      }
    }
  }
  for (float const norm : magnitudes(spread_values(31, 200, -5, 20))) {
    d.add(protrain::optim::clip_factor(norm, 1.7F));
    d.add(protrain::optim::gradient_scale(0x1p-10F, norm, 0.3F));
  }
}

/// Norms, with whole and partial granules and exponents down to where squares are denormal.
inline void add_norms(digest& d) {
  for (std::size_t const n : {0U, 1U, 100U, 128U, 1000U}) {
    for (int const low : {-70, -10}) {
      std::vector<float> const g = spread_values(n + 32, n, low, low + 14);
      protrain::optim::exact_sum total;
      protrain::optim::add_squares(total, g.data(), n);
      protrain::optim::add_squares(total, rounded(g).data(), n);
      d.add(protrain::optim::norm(total));
      d.add(protrain::optim::granule_sum(g.data(), n < 128 ? n : 128));
    }
  }
}

/// AdamW as users call it, with the widest vectors that the processor has.
struct dispatched {
  template <class G, class M>
  void operator()(protrain::optim::adamw_step const& step,
                  float s,
                  std::vector<G> const& g,
                  M const& masters,
                  std::vector<float>& m,
                  std::vector<float>& v) const {
    protrain::optim::update_range<protrain::optim::adamw>(
        step, s, g.data(), masters, {m.data(), v.data()}, g.size());
  }
};

/// AdamW with certain vectors, which the processor has, and element by element after them.
struct forced {
  protrain::optim::vectors with;

  template <class G, class M>
  void operator()(protrain::optim::adamw_step const& step,
                  float s,
                  std::vector<G> const& g,
                  M const& masters,
                  std::vector<float>& m,
                  std::vector<float>& v) const {
    protrain::float_environment const environment;
    std::size_t i = protrain::optim::adamw_vectors(
        with, step, s, g.data(), masters, m.data(), v.data(), g.size());
    for (; i < g.size(); ++i) {
      float p = masters.load(i);
      protrain::optim::adamw_element(step, s, protrain::widen(g[i]), p, m[i], v[i]);
      masters.store(i, p);
    }
  }
};

/// The arrays of one state format with values of type T: fp32, bf16 (split or beside) or fp16.
template <class T>
struct state_of {
  state_of(std::vector<float> const& values,
           std::vector<float> const& first,
           std::vector<float> const& second)
      : p(values), m(first), v(second), value(values.size()), lo(values.size(), 0) {}

  void add_to(digest& d) const {
    for (std::vector<float> const* values : {&p, &m, &v}) {
      d.add(*values);
    }
    for (std::size_t i = 0; i < value.size(); ++i) {
      if constexpr (!std::is_same_v<T, float>) {
        d.add(value[i].bits, 2);
      }
      d.add(static_cast<std::uint16_t>(lo[i]), 2);
    }
  }

  std::vector<float> p;
  std::vector<float> m;
  std::vector<float> v;
  std::vector<T> value;
  std::vector<std::int16_t> lo;
};

template <class T>
std::vector<T> narrowed(std::vector<float> const& values) {
  std::vector<T> result;
  for (float const x : values) {
    result.push_back(protrain::narrow<T>(x));
  }
  return result;
}

/// Five steps of every state format, with gradients stored and accumulated.
template <class Update>
void add_updates(digest& d, Update update) {
  constexpr std::size_t n = 1003;
  using protrain::bfloat16;
  using protrain::float16;
  std::vector<float> const p = with_specials(spread_values(33, n, -12, 4));
  std::vector<float> const m = spread_values(34, n, -126, 10);
  std::vector<float> const v = magnitudes(spread_values(35, n, -126, 20));
  state_of<float> whole(p, m, v);
  state_of<bfloat16> split(p, m, v);
  state_of<bfloat16> beside(p, m, v);
  state_of<float16> half(p, m, v);
  state_of<float> descent(p, m, v);
  protrain::optim::split_halves const halves{split.value.data(), split.lo.data()};
  for (std::size_t i = 0; i < n; ++i) {
    halves.store(i, p[i]);
  }
  std::vector<float> gradient(n, 0.0F);
  for (std::int64_t t = 1; t <= 5; ++t) {
    auto const stream = static_cast<std::uint64_t>(t);
    std::vector<float> const g = spread_values(36 + stream, n, -120, 10);
    std::vector<bfloat16> const narrow = rounded(with_specials(g));
    std::vector<float16> const scaled = narrowed<float16>(spread_values(50 + stream, n, -26, 15));
    protrain::optim::store(gradient.data(), g.data(), n);
    protrain::optim::add(gradient.data(), narrow.data(), n);
    protrain::optim::add(gradient.data(), scaled.data(), n);
    auto const step = protrain::optim::adamw{}.prepare(1e-2, t, true);
    update(step, 0.37F, gradient, protrain::optim::whole_master{whole.p.data()}, whole.m, whole.v);
    update(step, 0.37F, narrow, halves, split.m, split.v);
    update(step,
           0.37F,
           narrow,
           protrain::optim::master_beside<bfloat16>{beside.p.data(), beside.value.data()},
           beside.m,
           beside.v);
    update(step,
           0x1p-10F,
           scaled,
           protrain::optim::master_beside<float16>{half.p.data(), half.value.data()},
           half.m,
           half.v);
    protrain::optim::update_fp32<protrain::optim::sgd>(
        protrain::optim::sgd{.weight_decay = 0.1}.prepare(1e-2, t, true),
        0.37F,
        narrow.data(),
        descent.p.data(),
        {descent.m.data()},
        n);
  }
  whole.add_to(d);
  split.add_to(d);
  beside.add_to(d);
  half.add_to(d);
  descent.add_to(d);
}

template <class Update = dispatched>
std::uint64_t contract_digest(Update update = {}) {
  digest d;
  add_scalars(d);
  add_norms(d);
  add_updates(d, update);
  return d.hash;
}

}  // namespace protrain_test
