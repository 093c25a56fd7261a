// SPDX-License-Identifier: Apache-2.0
// Every vector path that this processor has gives the bits of the element function: any state
// format, gradient type, size and offset, and every class of numbers.

#include "protrain/optim/vectors.hpp"

#include "protrain/core/float_environment.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/master.hpp"
#include "test/unit/optim/support.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vectors_test {

namespace {

namespace optim = protrain::optim;
using optim::vectors;
using protrain::bfloat16;
using protrain::float16;
using protrain_test::bits_of;
using protrain_test::from_bits;

constexpr float guard = -77.0F;  // around every array

/// Every second value is any bit pattern: NaN, infinite, denormal and zero ones are common.
std::vector<float> any_values(std::uint64_t stream, std::size_t n) {
  protrain::random_stream const random = protrain::initial_stream(protrain_test::seed, stream);
  std::vector<float> values(n, 0.0F);
  for (std::size_t i = 0; i < n; ++i) {
    protrain::philox_words const w = random.quad(i);
    std::uint32_t const special = (w[0] & 0x80000001U) | (w[2] % 4 == 0   ? 0x7F800000U
                                                          : w[2] % 4 == 1 ? 0x00000000U
                                                          : w[2] % 4 == 2 ? 0x00800000U
                                                                          : 0x7FC01000U);
    values[i] = w[3] % 8 == 0   ? from_bits(special)
                : w[3] % 2 == 0 ? from_bits(w[0])
                                : protrain_test::spread_value(w[0], w[1], -20, 10);
  }
  return values;
}

/// The arrays of every state format.
struct arrays {
  arrays(std::size_t n, std::size_t offset)
      : first(offset),
        p(n + 16 + offset, guard),
        m(p),
        v(p),
        hi(p.size()),
        lo(p.size(), 0),
        bf16(p.size()),
        f16(p.size()) {
    std::vector<float> const values = any_values(51, n);
    std::vector<float> const moments = any_values(52, n);
    std::vector<float> const squares = any_values(53, n);
    for (std::size_t i = 0; i < n; ++i) {
      p[first + i] = values[i];
      m[first + i] = moments[i];
      v[first + i] = squares[i];
      optim::split_halves{hi.data() + first, lo.data() + first}.store(i, values[i]);
    }
  }
  optim::whole_master whole() { return {p.data() + first}; }
  optim::split_halves split() { return {hi.data() + first, lo.data() + first}; }
  optim::master_beside<bfloat16> beside_bf16() { return {p.data() + first, bf16.data() + first}; }
  optim::master_beside<float16> beside_f16() { return {p.data() + first, f16.data() + first}; }

  bool same(arrays const& other) const {
    return bits_of(p) == bits_of(other.p) && bits_of(m) == bits_of(other.m) &&
           bits_of(v) == bits_of(other.v) && hi == other.hi && lo == other.lo &&
           bf16 == other.bf16 && f16 == other.f16;
  }

  std::size_t first;
  std::vector<float> p;
  std::vector<float> m;
  std::vector<float> v;
  std::vector<bfloat16> hi;
  std::vector<std::int16_t> lo;
  std::vector<bfloat16> bf16;
  std::vector<float16> f16;
};

/// The element function over `n` elements.
template <class G, class M>
void by_element(
    optim::adamw_step const& step, float s, G const* g, M const& master, arrays& a, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    float p = master.load(i);
    optim::adamw_element(step, s, protrain::widen(g[i]), p, a.m[a.first + i], a.v[a.first + i]);
    master.store(i, p);
  }
}

/// Elements done by `with`, or ~0 if any bit differs from the element function's.
template <class G, class Masters>
std::size_t done(vectors with, std::vector<G> const& g, std::size_t offset, Masters masters) {
  std::size_t const n = g.size() - offset;
  auto const step = optim::adamw{}.prepare(1e-3, 10, true);
  float const s = 0.75F;
  protrain::float_environment const environment;
  arrays got(n, offset);
  std::size_t const count = optim::adamw_vectors(with,
                                                 step,
                                                 s,
                                                 g.data() + offset,
                                                 masters(got),
                                                 got.m.data() + offset,
                                                 got.v.data() + offset,
                                                 n);
  arrays want(n, offset);
  by_element(step, s, g.data() + offset, masters(want), want, count);
  return got.same(want) ? count : ~std::size_t{0};
}

template <class G>
void check_formats(vectors with, std::size_t n, std::size_t offset) {
  std::vector<G> g;
  for (float const x : any_values(54, n + offset)) {
    g.push_back(protrain::narrow<G>(x));
  }
  std::size_t const width = with == vectors::avx512 ? 16 : with == vectors::avx2 ? 8 : n + 1;
  std::size_t const whole = n - n % width;
  std::size_t const expected = with == vectors::none ? 0 : whole;
  CHECK(done(with, g, offset, [](arrays& a) { return a.whole(); }) == expected);
  CHECK(done(with, g, offset, [](arrays& a) { return a.split(); }) == expected);
  CHECK(done(with, g, offset, [](arrays& a) { return a.beside_bf16(); }) == expected);
  CHECK(done(with, g, offset, [](arrays& a) { return a.beside_f16(); }) == expected);
}

template <class Body>
void for_each_supported(Body body) {
  for (vectors const with : {vectors::none, vectors::avx2, vectors::avx512}) {
    CAPTURE(name_of(with));
    if (optim::supported(with)) {
      body(with);
    } else {
      MESSAGE("skipped: this processor has no " << std::string(name_of(with)));
    }
  }
}

}  // namespace

TEST_CASE("every vector path has the element's bits at all sizes and offsets") {
  MESSAGE("seed " << protrain_test::seed);
  for_each_supported([](vectors with) {
    for (std::size_t const n : {0U, 1U, 7U, 8U, 15U, 16U, 17U, 1000U}) {
      for (std::size_t offset = 0; offset < 16; ++offset) {
        check_formats<float>(with, n, offset);
        check_formats<bfloat16>(with, n, offset);
        check_formats<float16>(with, n, offset);
      }
    }
  });
}

TEST_CASE("every vector path has the element's bits over a million elements") {
  for_each_supported([](vectors with) { check_formats<float>(with, 1000003, 1); });
}

TEST_CASE("the widest vectors are supported, and scalar loops always are") {
  CHECK(optim::supported(optim::widest_vectors()));
  CHECK(optim::supported(vectors::none));
}

}  // namespace vectors_test
