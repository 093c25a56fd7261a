// SPDX-License-Identifier: Apache-2.0
#pragma once
// One number that stands for the bits of everything this folder computes. It is the same for every
// compiler, flag, instruction set and floating-point environment; the tests compare it with the
// value below, so that no two builds need to be linked into one program.

#include "protrain/core/bfloat16.hpp"
#include "protrain/optim/accumulate.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/norm.hpp"
#include "protrain/optim/scale.hpp"
#include "test/unit/optim/support.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain_test {

inline constexpr std::uint64_t expected_digest = 190155618509054082U;

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

/// Five steps of every state format, with gradients stored and accumulated.
inline void add_updates(digest& d) {
  constexpr std::size_t n = 1003;
  using protrain::bfloat16;
  std::vector<float> p = with_specials(spread_values(33, n, -12, 4));
  std::vector<float> m = spread_values(34, n, -126, 10);
  std::vector<float> v = magnitudes(spread_values(35, n, -126, 20));
  std::vector<float> split_m = m;
  std::vector<float> split_v = v;
  std::vector<bfloat16> hi(n);
  std::vector<std::int16_t> lo(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    hi[i] = protrain::split_master(p[i]).hi;
    lo[i] = protrain::split_master(p[i]).lo;
  }
  std::vector<float> gradient(n, 0.0F);
  for (std::int64_t t = 1; t <= 5; ++t) {
    auto const stream = static_cast<std::uint64_t>(t);
    std::vector<float> const g = spread_values(36 + stream, n, -120, 10);
    std::vector<bfloat16> const narrow = rounded(with_specials(g));
    protrain::optim::store(gradient.data(), g.data(), n);
    protrain::optim::add(gradient.data(), narrow.data(), n);
    auto const step = protrain::optim::adamw{}.prepare(1e-2, t, true);
    protrain::optim::update_fp32(step, 0.37F, gradient.data(), p.data(), m.data(), v.data(), n);
    protrain::optim::update_split(
        step, 0.37F, narrow.data(), hi.data(), lo.data(), split_m.data(), split_v.data(), n);
  }
  for (std::vector<float> const* values : {&p, &m, &v, &split_m, &split_v}) {
    d.add(*values);
  }
  for (std::size_t i = 0; i < n; ++i) {
    d.add(hi[i].bits, 2);
    d.add(static_cast<std::uint16_t>(lo[i]), 2);
  }
}

inline std::uint64_t contract_digest() {
  digest d;
  add_scalars(d);
  add_norms(d);
  add_updates(d);
  return d.hash;
}

}  // namespace protrain_test
