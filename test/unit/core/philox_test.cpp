// SPDX-License-Identifier: Apache-2.0
// Philox against the published answers; uniforms and normals against moments, quantiles and bits.

#include "protrain/core/philox.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

namespace philox_test {

namespace {

using protrain::hash_name;
using protrain::initial_stream;
using protrain::make_stream;
using protrain::philox4x32;
using protrain::philox_words;
using protrain::random_key;
using protrain::random_stream;
using protrain::to_normal;
using protrain::to_uniform;

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) ==
              philox_words{0x6627E8D5U, 0xE169C58DU, 0xBC57AC4CU, 0x9B00DBD8U});
static_assert(philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}) ==
              philox_words{0x408F276DU, 0x41C83B0EU, 0xA20BC7C6U, 0x6D5451FDU});
static_assert(philox4x32({0x243F6A88U, 0x85A308D3U, 0x13198A2EU, 0x03707344U},
                         {0xA4093822U, 0x299F31D0U}) ==
              philox_words{0xD16CFE09U, 0x94FDCCEBU, 0x5001E420U, 0x24126EA1U});

// The FNV authors' test vectors.
static_assert(hash_name("") == 0xCBF29CE484222325U);
static_assert(hash_name("a") == 0xAF63DC4C8601EC8CU);
static_assert(hash_name("foobar") == 0x85944171F73967E8U);

static_assert(to_uniform(0) == 0.0F && to_uniform(~0U) == 1.0F - 0x1p-24F);
static_assert(std::bit_cast<std::uint32_t>(to_normal(0x80000000U)) == 0);
static_assert(std::bit_cast<std::uint32_t>(to_normal(0x7FFFFFFFU)) == 0);
static_assert(make_stream({.seed = 1}) != make_stream({.seed = 2}));

double tail(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

}  // namespace

TEST_CASE("a word depends on its element only, alone or in a quad") {
  random_stream const stream =
      make_stream({.seed = 7, .step = 3, .sample = 11, .block = 2, .op = 5});
  for (std::uint64_t const first : {std::uint64_t{0}, std::uint64_t{1} << 34U}) {
    philox_words const words = stream.quad(first / 4);
    for (std::uint64_t i = 0; i < 4; ++i) {
      CHECK(stream.word(first + i) == words[i]);
    }
  }
  CHECK(stream.word(0) != stream.word(std::uint64_t{1} << 34U));
}

TEST_CASE("places differ in every field and at the ends of their ranges") {
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  int places = 0;
  auto const add = [&](random_key const& at) {
    random_stream const s = make_stream(at);
    seen.insert({s.key, s.lane});
    ++places;
  };
  for (std::uint64_t step : {std::uint64_t{0}, std::uint64_t{1}, (std::uint64_t{1} << 40U) - 1}) {
    for (int bit = -1; bit < 48; ++bit) {
      std::uint64_t const sample = bit < 0 ? 0 : std::uint64_t{1} << static_cast<unsigned>(bit);
      for (std::uint32_t block : {0U, 1U, (1U << 20U) - 1}) {
        for (std::uint32_t op : {0U, 1U, (1U << 20U) - 1}) {
          add({.seed = 1, .step = step, .sample = sample, .block = block, .op = op});
        }
      }
    }
  }
  CHECK(seen.size() == static_cast<std::size_t>(places));
}

TEST_CASE("a place that does not fit its bits is refused") {
  static bool called = false;
  called = false;
  struct refused {};
  auto const old = protrain::set_violation_handler([](protrain::violation const&) {
    called = true;
    throw refused{};
  });
  CHECK_THROWS_AS(make_stream({.step = std::uint64_t{1} << 40U}), refused);
  CHECK_THROWS_AS(make_stream({.sample = std::uint64_t{1} << 48U}), refused);
  CHECK_THROWS_AS(make_stream({.block = 1U << 20U}), refused);
  CHECK_THROWS_AS(make_stream({.op = 1U << 20U}), refused);
  protrain::set_violation_handler(old);
  CHECK(called);
}

TEST_CASE("uniforms fill [0, 1) evenly") {
  random_stream const stream = initial_stream(1, hash_name("uniform"));
  double sum = 0;
  double squares = 0;
  constexpr int n = 100000;
  for (std::uint64_t i = 0; i < n; ++i) {
    double const u = static_cast<double>(stream.uniform(i));
    REQUIRE(u >= 0.0);
    REQUIRE(u < 1.0);
    sum += u;
    squares += u * u;
  }
  CHECK(std::abs(sum / n - 0.5) < 4 * std::sqrt(1.0 / 12 / n));
  CHECK(std::abs(squares / n - 1.0 / 3) < 4 * std::sqrt(4.0 / 45 / n));
}

TEST_CASE("normals are the quantile of their word") {
  float last = -1.0F;
  for (std::uint64_t i = 0; i < (std::uint64_t{1} << 31U); i += 19997) {  // a prime
    auto const z = to_normal(static_cast<std::uint32_t>(i) | 0x80000000U);
    double const upper = 0.5 - (2 * static_cast<double>(i) + 1) / 0x1p33;
    double const exact = static_cast<double>(z);
    double const density = std::exp(-exact * exact / 2) * 0.3989422804014327;
    if (!(std::abs(tail(exact) - upper) / density < 4e-7) || z < last) {
      FAIL("word " << i);
    }
    last = z;
  }
  for (std::uint32_t i = 0; i < 20000; ++i) {  // the far tail, where one word is many quanta
    double const z = static_cast<double>(to_normal(~0U - i));
    double const upper = (2 * static_cast<double>(i) + 1) / 0x1p33;
    double const density = std::exp(-z * z / 2) * 0.3989422804014327;
    if (!(std::abs(tail(z) - upper) / density < 4e-7)) {
      FAIL("word " << i);
    }
  }
  CHECK(to_normal(~0U) == doctest::Approx(6.338).epsilon(0.001));
}

TEST_CASE("normals are antisymmetric and have unit moments") {
  random_stream const stream = initial_stream(1, hash_name("normal"));
  double m1 = 0;
  double m2 = 0;
  double m4 = 0;
  constexpr int n = 200000;
  for (std::uint64_t i = 0; i < n; ++i) {
    std::uint32_t const word = stream.word(i);
    float const z = to_normal(word);
    REQUIRE(z == -to_normal(~word));
    double const d = static_cast<double>(z);
    m1 += d;
    m2 += d * d;
    m4 += d * d * d * d;
  }
  CHECK(std::abs(m1 / n) < 4 / std::sqrt(n));
  CHECK(std::abs(m2 / n - 1) < 4 * std::sqrt(2.0 / n));
  CHECK(std::abs(m4 / n - 3) < 4 * std::sqrt(96.0 / n));
}

}  // namespace philox_test
