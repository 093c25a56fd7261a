// SPDX-License-Identifier: Apache-2.0
// CPU Adam is wrong at odd sizes or dtypes: every size, offset, gradient dtype, step and state
// format, on the scalar path, every vector path and several threads, has one set of bits, which is
// within the rounding of AdamW in fp64.

#include "protrain/core/arithmetic.hpp"
#include "protrain/device/workers.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/master.hpp"
#include "protrain/optim/threaded.hpp"
#include "protrain/optim/update.hpp"
#include "protrain/optim/vectors.hpp"
#include "test/unit/optim/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace odd_sizes_test {

namespace {

namespace optim = protrain::optim;
using optim::adamw;
using optim::vectors;
using protrain::bfloat16;
using protrain::float16;
using protrain_test::bits_of;
using protrain_test::spread_values;

constexpr double rate = 1e-3;
constexpr float scale = 0.75F;
constexpr std::size_t margin = 17;  // elements after an array

// --- the reference -------------------------------------------------------------------------------

/// AdamW of one element in fp64, straight from the hyper-parameters, and how far fp32 may be off.
///
/// u = 2^-24 is the relative error of one fp32 rounding. With b = beta and e, d, x standing for
/// errors of at most u each, the contract computes
///   g' = g(1+d)
///   m' = (b1(1+e) m + (1-b1)(1+e) g'(1+d)) (1+x)     off by u b1|m| + 3u (1-b1)|g| + u|M|
///   v' = (b2(1+e) v + (1-b2)(1+e) g' g'(1+d)(1+d)) (1+x)                  off by at most 6u V
///   root = sqrt(v')(1+d), off by 3u + u;  r = R(1+e), off by u; eps(1+e)
///   d' = (root r + eps)(1+x)                         off by at most 5u sqrt(V)R + u eps + u D <= 6u D
///   q' = m'/d' (1+d)                                 off by |m'-M| / D + 7u|Q|
///   p' = (-a q' + k p (1+d))(1+x), a and k off by u: off by A|m'-M| / D + 8u A|Q| + 2u|K p| + u|P|
/// for real M, V, D, Q, P of the exact formula. Squares of u and the errors of fp64 are far below
/// the thousandth that is added. State below 2^-126 is stored as zero; denormal results of p round
/// to multiples of 2^-149.
struct reference {
  double m = 0;
  double v = 0;
  double p = 0;
  double m_bound = 0;
  double v_bound = 0;
  double p_bound = 0;
};

struct formula {
  formula(adamw const& rule, std::int64_t t, bool decay)
      : b1(rule.beta1), b2(rule.beta2), eps(rule.eps) {
    auto const steps = static_cast<double>(t);
    a = rate / (1 - std::pow(b1, steps));
    r = 1 / std::sqrt(1 - std::pow(b2, steps));
    k = decay ? 1 - rate * rule.weight_decay : 1;
  }

  reference of(double gradient, double p, double m, double v) const {
    constexpr double u = 0x1p-24;
    double const g = static_cast<double>(scale) * gradient;
    reference out;
    out.m = b1 * m + (1 - b1) * g;
    out.v = b2 * v + (1 - b2) * g * g;
    double const d = std::sqrt(out.v) * r + eps;
    double const q = out.m / d;
    out.p = k * p - a * q;
    double const m_off = u * (b1 * std::abs(m) + 3 * (1 - b1) * std::abs(g) + std::abs(out.m));
    out.m_bound = 1.001 * m_off + 0x1p-126;
    out.v_bound = 1.001 * 6 * u * out.v + 0x1p-126;
    out.p_bound = 1.001 * (a * m_off / d +
                           u * (8 * a * std::abs(q) + 2 * std::abs(k * p) + std::abs(out.p))) +
                  0x1p-149;
    return out;
  }

  double b1;
  double b2;
  double eps;
  double a = 0;
  double r = 0;
  double k = 0;
};

// --- what is stepped -----------------------------------------------------------------------------

/// Elements before the step and after it, by the element function, and their gradients.
template <class G>
struct sample {
  sample(std::size_t n, std::int64_t step, bool decayed)
      : t(step),
        decay(decayed),
        p(spread_values(1, n, -12, 4)),
        m(spread_values(2, n, -20, 10)),
        v(protrain_test::magnitudes(spread_values(3, n, -40, 20))),
        p_after(p),
        m_after(m),
        v_after(v) {
    for (float const x : spread_values(4, n, -20, 10)) {
      g.push_back(protrain::narrow<G>(x));
    }
    protrain::float_environment const environment;
    for (std::size_t i = 0; i < n; ++i) {
      optim::adamw_element(
          numbers(), scale, protrain::widen(g[i]), p_after[i], m_after[i], v_after[i]);
    }
  }
  optim::adamw_step numbers() const { return adamw{}.prepare(rate, t, decay); }
  std::size_t size() const { return p.size(); }

  /// Elements that are further from fp64 than rounding explains.
  std::size_t wrong() const {
    formula const exact(adamw{}, t, decay);
    auto const wide = [](float x) { return static_cast<double>(x); };
    std::size_t count = 0;
    for (std::size_t i = 0; i < size(); ++i) {
      reference const want =
          exact.of(wide(protrain::widen(g[i])), wide(p[i]), wide(m[i]), wide(v[i]));
      bool const near = std::abs(wide(m_after[i]) - want.m) <= want.m_bound &&
                        std::abs(wide(v_after[i]) - want.v) <= want.v_bound &&
                        std::abs(wide(p_after[i]) - want.p) <= want.p_bound;
      count += near ? 0U : 1U;
    }
    return count;
  }

  std::int64_t t;
  bool decay;
  std::vector<float> p;
  std::vector<float> m;
  std::vector<float> v;
  std::vector<float> p_after;
  std::vector<float> m_after;
  std::vector<float> v_after;
  std::vector<G> g{};
};

/// Arrays of a state format that begin `offset` elements into their memory, which has a pattern
/// before and behind them.
struct fp32_format {
  fp32_format(std::size_t n, std::size_t offset) : first(offset), p(n + offset + margin, -77.0F) {}
  optim::whole_master at() { return {p.data() + first}; }
  bool operator==(fp32_format const& o) const { return bits_of(p) == bits_of(o.p); }
  std::size_t first;
  std::vector<float> p;
};
struct split_format {
  split_format(std::size_t n, std::size_t offset)
      : first(offset), hi(n + offset + margin, bfloat16{0x1234}), lo(hi.size(), 0x4321) {}
  optim::split_halves at() { return {hi.data() + first, lo.data() + first}; }
  bool operator==(split_format const&) const = default;
  std::size_t first;
  std::vector<bfloat16> hi;
  std::vector<std::int16_t> lo;
};
template <class V>
struct separate_format {
  separate_format(std::size_t n, std::size_t offset)
      : first(offset), p(n + offset + margin, -77.0F), value(p.size(), V{0x1234}) {}
  optim::master_beside<V> at() { return {p.data() + first, value.data() + first}; }
  bool operator==(separate_format const& o) const {
    return bits_of(p) == bits_of(o.p) && value == o.value;
  }
  std::size_t first;
  std::vector<float> p;
  std::vector<V> value;
};

// --- the paths -----------------------------------------------------------------------------------

/// AdamW with vectors of one kind, or none.
template <vectors With>
struct adamw_by : adamw {
  template <protrain::stored_float G, optim::master_arrays M>
  static std::size_t vectorised(optim::adamw_step const& step,
                                float s,
                                G const* gradient,
                                M const& master,
                                optim::state_arrays<adamw> const& state,
                                std::size_t n) noexcept {
    return optim::adamw_vectors(With, step, s, gradient, master, state[0], state[1], n);
  }
};
static_assert(optim::update_rule<adamw_by<vectors::none>>);

/// A processor's paths. Three and seven threads step with the widest vectors.
constexpr std::array<char const*, 5> paths{"scalar", "avx2", "avx512", "3 threads", "7 threads"};

bool runs_here(std::size_t path) {
  return path == 1   ? optim::supported(vectors::avx2)
         : path == 2 ? optim::supported(vectors::avx512)
                     : true;
}

protrain::device::workers& crew_of(std::uint32_t threads) {
  static protrain::device::workers three(3);
  static protrain::device::workers seven(7);
  return threads == 3 ? three : seven;
}

template <class G, class M>
void step_by(std::size_t path,
             optim::adamw_step const& step,
             G const* g,
             M const& masters,
             optim::state_arrays<adamw> const& state,
             std::size_t n) {
  switch (path) {
    case 0:
      return optim::update_range<adamw_by<vectors::none>>(step, scale, g, masters, state, n);
    case 1:
      return optim::update_range<adamw_by<vectors::avx2>>(step, scale, g, masters, state, n);
    case 2:
      return optim::update_range<adamw_by<vectors::avx512>>(step, scale, g, masters, state, n);
    default:
      return optim::update_range<adamw>(
          crew_of(path == 3 ? 3 : 7), step, scale, g, masters, state, n);
  }
}

/// `values` between patterns.
std::vector<float> placed(std::vector<float> const& values, std::size_t offset) {
  std::vector<float> out(offset, -77.0F);
  out.insert(out.end(), values.begin(), values.end());
  out.insert(out.end(), margin, -77.0F);
  return out;
}

/// Whether a path has the element function's bits and touches nothing else. Gradients begin
/// elsewhere than the rest.
template <class Format, class G>
bool same_bits(std::size_t path, sample<G> const& x, std::size_t offset) {
  std::size_t const n = x.size();
  Format got(n, offset);
  for (std::size_t i = 0; i < n; ++i) {
    got.at().store(i, x.p[i]);
  }
  Format want = got;
  for (std::size_t i = 0; i < n; ++i) {
    want.at().store(i, x.p_after[i]);
  }
  std::vector<float> m = placed(x.m, offset);
  std::vector<float> v = placed(x.v, offset);
  std::size_t const shift = (5 * offset + 3) % 16;
  std::vector<G> g(shift);
  g.insert(g.end(), x.g.begin(), x.g.end());
  step_by(path, x.numbers(), g.data() + shift, got.at(), {m.data() + offset, v.data() + offset}, n);
  return got == want && bits_of(m) == bits_of(placed(x.m_after, offset)) &&
         bits_of(v) == bits_of(placed(x.v_after, offset));
}

constexpr std::size_t format_count = 4;

template <class G>
bool same_bits(std::size_t format, std::size_t path, sample<G> const& x, std::size_t offset) {
  switch (format) {
    case 0:
      return same_bits<fp32_format>(path, x, offset);
    case 1:
      return same_bits<split_format>(path, x, offset);
    case 2:
      return same_bits<separate_format<bfloat16>>(path, x, offset);
    default:
      return same_bits<separate_format<float16>>(path, x, offset);
  }
}

/// Every format, path and offset of one small size.
template <class G>
void check_small(std::size_t n, std::int64_t t, bool decay) {
  sample<G> const x(n, t, decay);
  CHECK(x.wrong() == 0);
  for (std::size_t offset = 0; offset < 16; ++offset) {
    for (std::size_t path = 0; path < paths.size(); ++path) {
      for (std::size_t format = 0; format < format_count && runs_here(path); ++format) {
        CAPTURE(paths[path]);
        CAPTURE(format);
        CAPTURE(offset);
        CHECK(same_bits(format, path, x, offset));
      }
    }
  }
}

/// Every format; paths and offsets take turns, `turn` after `turn`.
template <class G>
void check_large(std::size_t n, std::int64_t t, bool decay, std::size_t& turn) {
  sample<G> const x(n, t, decay);
  CHECK(x.wrong() == 0);
  for (std::size_t format = 0; format < format_count; ++format, ++turn) {
    std::size_t path = (turn / format_count + format) % paths.size();
    while (!runs_here(path)) {
      path = (path + 1) % paths.size();
    }
    CAPTURE(paths[path]);
    CAPTURE(format);
    CHECK(same_bits(format, path, x, turn % 16));
  }
}

/// 2,000 steps of zero gradients after a first one: elements of m and v that are neither zero nor
/// normal at some step, or m that isn't +0 in the end.
template <class M>
std::uint64_t denormals_in(std::size_t path, M const& masters, std::size_t n) {
  std::vector<float> const first = spread_values(11, n, -70, 10);
  std::vector<bfloat16> const none(n);
  std::vector<float> m(n, 0.0F);
  std::vector<float> v(n, 0.0F);
  std::uint64_t found = 0;
  for (std::int64_t t = 1; t <= 2000; ++t) {
    optim::adamw_step const step = adamw{}.prepare(rate, t, true);
    if (t == 1) {
      step_by(path, step, first.data(), masters, {m.data(), v.data()}, n);
    } else {
      step_by(path, step, none.data(), masters, {m.data(), v.data()}, n);
    }
    for (std::size_t i = 0; i < n; ++i) {
      found += (m[i] != 0.0F && !std::isnormal(m[i])) || (v[i] != 0.0F && !std::isnormal(v[i]));
    }
  }
  for (float const x : m) {
    found += bits_of(x) != 0 ? 1U : 0U;
  }
  return found;
}

}  // namespace

TEST_CASE("CPU Adam is wrong at odd sizes or dtypes: never, one set of bits on every path") {
  MESSAGE("seed " << protrain_test::seed);
  for (std::size_t path = 0; path < paths.size(); ++path) {
    if (!runs_here(path)) {
      MESSAGE("skipped: this processor has no " << std::string(paths[path]));
    }
  }
  for (std::int64_t const t : {1, 10, 100000}) {
    for (std::size_t const n : {0U, 1U, 7U, 8U, 15U, 16U, 17U}) {
      CAPTURE(t);
      CAPTURE(n);
      check_small<float>(n, t, n % 2 == 0);
      check_small<bfloat16>(n, t, n % 2 != 0);
      check_small<float16>(n, t, n % 2 == 0);
    }
  }
}

TEST_CASE("CPU Adam is wrong at odd sizes or dtypes: a million and three elements") {
  std::size_t turn = 0;
  for (std::int64_t const t : {1, 10, 100000}) {
    CAPTURE(t);
    check_large<float>(1000003, t, true, turn);
    check_large<bfloat16>(1000003, t, false, turn);
    check_large<float16>(1000003, t, true, turn);
  }
  CHECK(turn == 36);  // every offset, and every format on every path
}

TEST_CASE("CPU Adam and denormals: zero gradients for 2,000 steps leave none, on no path") {
  constexpr std::size_t n = 67;
  for (std::size_t path = 0; path < paths.size(); ++path) {
    if (!runs_here(path)) {
      continue;
    }
    CAPTURE(paths[path]);
    std::vector<float> master(n, 1.0F);
    std::vector<bfloat16> value(n, bfloat16{0x3F80});
    std::vector<float16> half(n, float16{0x3C00});
    std::vector<std::int16_t> lo(n, 0);
    CHECK(denormals_in(path, optim::whole_master{master.data()}, n) == 0);
    CHECK(denormals_in(path, optim::split_halves{value.data(), lo.data()}, n) == 0);
    CHECK(denormals_in(path, optim::master_beside<bfloat16>{master.data(), value.data()}, n) == 0);
    CHECK(denormals_in(path, optim::master_beside<float16>{master.data(), half.data()}, n) == 0);
  }
}

}  // namespace odd_sizes_test
