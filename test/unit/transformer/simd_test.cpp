// SPDX-License-Identifier: Apache-2.0
// Vectors against scalar code: the same bits where that is promised, libm where it is accuracy.

#include "test/unit/transformer/harness.hpp"

namespace simd_test {

using namespace transformer;
using namespace transformer::harness;

TEST_CASE("a bfloat16 pack rounds as the library does") {
  std::vector<std::uint32_t> patterns{
      0x7F800001U, 0xFFC00000U, 0x7FFFFFFFU, 0x7F7FFFFFU, 0xFF7F8000U};
  for (std::uint32_t high = 0; high < 0x10000U; high += 7) {
    for (std::uint32_t const low : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      patterns.push_back((high << 16U) | low);
    }
  }
  for (std::uint32_t const bits : patterns) {
    float const x = std::bit_cast<float>(bits);
    bfloat16 out[4];
    store(out, pack<float>::all(x), 4);
    bfloat16 const expected = protrain::core::to_bfloat16(x);
    float back[4];
    store(back, load(out, 4), 4);
    REQUIRE(out[3] == expected);
    REQUIRE(std::bit_cast<std::uint32_t>(back[2]) == std::uint32_t{expected.bits} << 16U);
  }
}

TEST_CASE_TEMPLATE("parts of a pack leave the rest alone", T, float, double, bfloat16) {
  memory m;
  constexpr length width = pack<accumulator_t<T>>::width;
  for (length n = 1; n <= width; ++n) {
    T const* const from = m.put<T>(random_values(n, "part"));
    T* const to = m.make<T>(n);
    auto const a = load(from, n);
    for (length i = n; i < width; ++i) {
      CHECK(a.v[i] == 0);
    }
    store(to, a, n);
    CHECK(std::memcmp(from, to, static_cast<std::size_t>(n) * sizeof(T)) == 0);
  }
  CHECK(m.guards_intact());
}

TEST_CASE("exp: accurate, monotone at its ends, NaN stays") {
  double worst = 0;
  for (int i = -87000; i <= 88000; ++i) {
    float const x = static_cast<float>(i) * 1.0e-3F;
    double const exact = std::exp(static_cast<double>(x));
    double const error =
        std::abs(static_cast<double>(exp(pack<float>::all(x)).v[0]) - exact) / exact;
    worst = std::max(worst, error);
  }
  MESSAGE("worst relative error of exp ", worst);
  CHECK(worst < 2 * 0x1p-23);
  auto const at = [](float x) { return exp(pack<float>::all(x)).v[1]; };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(at(0.0F) == 1.0F);
  CHECK(at(-87.4F) == 0.0F);
  CHECK(at(-infinity) == 0.0F);
  CHECK(at(88.37F) < infinity);
  CHECK(at(88.4F) == infinity);
  CHECK(at(infinity) == infinity);
  CHECK(std::isnan(at(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("sums add in the documented order") {
  for (length n = 0; n < 40; ++n) {
    memory m;
    float const* const x = m.put<float>(random_values(n, "sum", 1000));
    float lane[2][4] = {};
    for (length i = 0; i < n; ++i) {
      bool const odd = i / 4 % 2 == 1 || i / 4 * 4 + 4 > n;  // what is left goes to the odd packs
      lane[odd ? 1 : 0][i % 4] += x[i];
    }
    float column[4];
    for (int i = 0; i < 4; ++i) {
      column[i] = lane[0][i] + lane[1][i];
    }
    float const expected = (column[0] + column[2]) + (column[1] + column[3]);
    float const sum = sum_packs<float>(n, [&](length i, length c) { return load(x + i, c); });
    CHECK(sum == expected);
    float const most = max_packs<float>(n, [&](length i, length c) { return load(x + i, c); });
    CHECK(most == (n == 0 ? -std::numeric_limits<float>::infinity() : *std::max_element(x, x + n)));
  }
}

TEST_CASE("column sums add rows in ascending order") {
  for (length const columns : {1, 3, 4, 16, 17, 35}) {
    length const rows = 9;
    memory m;
    float const* const x = m.put<float>(random_values(rows * columns, "columns", 1000));
    float* const out = m.make<float>(columns);
    sum_columns<float>(
        rows,
        columns,
        [&](length r, length j, length c) { return load(x + r * columns + j, c); },
        [&](length j, length c, pack<float> sum) { store(out + j, sum, c); });
    for (length j = 0; j < columns; ++j) {
      float expected = 0;
      for (length r = 0; r < rows; ++r) {
        expected += x[r * columns + j];
      }
      CHECK(out[j] == expected);
    }
    CHECK(m.guards_intact());
  }
}

}  // namespace simd_test
