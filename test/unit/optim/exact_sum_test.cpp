// SPDX-License-Identifier: Apache-2.0
// The wide accumulator against a schoolbook big integer, and its independence of order.

#include "protrain/optim/exact_sum.hpp"

#include "test/unit/optim/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <vector>

namespace exact_sum_test {

namespace {

using protrain::optim::exact_sum;
using protrain_test::bits_of;
using protrain_test::from_bits;
using protrain_test::seed;
using protrain_test::spread_values;

constexpr exact_sum sum_of(std::initializer_list<float> values) {
  exact_sum total;
  for (float const x : values) {
    total.add(x);
  }
  return total;
}

static_assert(sum_of({}).value() == 0.0);
static_assert(sum_of({1.0F, 0x1p-149F, 0x1p127F}) == sum_of({0x1p127F, 1.0F, 0x1p-149F}));
static_assert(sum_of({0x1p-149F}).value() == 0x1p-149);
static_assert(sum_of({0x1p-126F, 0x1p-149F}).value() == 0x1.000002p-126);
static_assert(sum_of({1.0F, 0x1p-52F}).value() == 1.0 + 0x1p-52);
static_assert(sum_of({1.0F, 0x1p-53F}).value() == 1.0);                       // tie, even below
static_assert(sum_of({1.0F, 0x1p-52F, 0x1p-53F}).value() == 1.0 + 0x1p-51);   // tie, even above
static_assert(sum_of({1.0F, 0x1p-53F, 0x1p-149F}).value() == 1.0 + 0x1p-52);  // just above a tie
static_assert(sum_of({0x1p20F, 0x1.fffffep19F, 0x1p-33F}).value() >
              0x1.fffffcp20);  // no fp32 rounding
static_assert(!sum_of({1.0F, std::numeric_limits<float>::infinity()}).finite());
static_assert(!sum_of({std::numeric_limits<float>::quiet_NaN()}).finite());
static_assert(sum_of({0.0F, -0.0F}) == exact_sum{});
// The carry of rounding up moves into the exponent.
static_assert(sum_of({0x1.fffffep0F, 0x1.fffffep-24F, 0x1p-47F, 0x1p-53F}).value() == 2.0);

/// Little-endian 32-bit digits of a multiple of 2^-149.
class big_integer {
 public:
  void add(float x) {
    int exponent = 0;
    auto const mantissa = static_cast<std::uint32_t>(std::ldexp(std::frexp(x, &exponent), 24));
    int shift = exponent - 24 + 149;
    std::uint64_t digits = mantissa;
    if (shift < 0) {  // a denormal: the bits shifted out are zeros
      digits >>= static_cast<unsigned>(-shift);
      shift = 0;
    }
    auto const at = static_cast<unsigned>(shift);
    digits <<= at % 32;
    for (std::size_t i = at / 32; digits != 0; ++i) {
      digits += digit_[i];
      digit_[i] = static_cast<std::uint32_t>(digits);
      digits >>= 32U;
    }
  }

  double value() const {
    std::vector<int> bits;  // from the highest set one down
    for (std::size_t i = 32 * digit_.size(); i-- > 0;) {
      int const bit = static_cast<int>((digit_[i / 32] >> (i % 32)) & 1U);
      if (bit != 0 || !bits.empty()) {
        bits.push_back(bit);
      }
    }
    std::uint64_t kept = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(53, bits.size()); ++i) {
      kept = 2 * kept + static_cast<std::uint64_t>(bits[i]);
    }
    if (bits.size() <= 53) {
      return std::ldexp(static_cast<double>(kept), -149);
    }
    bool const half = bits[53] != 0;
    bool const rest = std::find(bits.begin() + 54, bits.end(), 1) != bits.end();
    kept += half && (rest || kept % 2 != 0) ? 1U : 0U;
    return std::ldexp(static_cast<double>(kept), static_cast<int>(bits.size()) - 53 - 149);
  }

 private:
  std::vector<std::uint32_t> digit_ = std::vector<std::uint32_t>(12, 0);
};

void check_against_oracle(std::vector<float> const& values) {
  exact_sum total;
  big_integer oracle;
  for (float const x : values) {
    total.add(x);
    oracle.add(x);
    REQUIRE(std::bit_cast<std::uint64_t>(total.value()) ==
            std::bit_cast<std::uint64_t>(oracle.value()));
  }
}

}  // namespace

TEST_CASE("sums equal a big integer's, rounded once") {
  MESSAGE("seed " << seed);
  struct range {
    int low;
    int high;
  };
  for (range const r : {range{-126, 127}, range{-10, 10}, range{100, 127}, range{-126, -100}}) {
    for (std::uint64_t stream = 0; stream < 5; ++stream) {
      check_against_oracle(
          protrain_test::magnitudes(spread_values(1000 + stream, 200, r.low, r.high)));
    }
  }
  std::vector<float> denormals;
  for (std::uint32_t i = 1; i < 0x00800000U; i += 40009) {
    denormals.push_back(from_bits(i));
  }
  check_against_oracle(denormals);
}

TEST_CASE("every power of two lands on its bit") {
  for (int e = -149; e < 128; ++e) {
    exact_sum total;
    total.add(std::ldexp(1.0F, e));
    CHECK(total.value() == std::ldexp(1.0, e));
  }
}

TEST_CASE("carries run through all limbs") {
  exact_sum total;
  for (std::uint32_t limb = 0; limb < exact_sum::limbs; ++limb) {
    total.add_shifted(~std::uint64_t{0}, 64 * limb);
  }
  exact_sum same = total;
  CHECK(total.finite());
  CHECK(total.value() == 0x1p171);
  total.add_shifted(1, 0);  // one bit too many for 320: said, not wrapped
  CHECK_FALSE(total.finite());
  exact_sum one;
  one.add(0x1p-149F);
  same.merge(one);
  CHECK_FALSE(same.finite());
}

TEST_CASE("a merge carries into a limb that is full in either sum") {
  exact_sum carries;  // 2^64 - 1 twice in the lowest limb
  carries.add_shifted(~std::uint64_t{0}, 0);
  for (bool const swap : {false, true}) {
    exact_sum full = carries;
    full.add_shifted(~std::uint64_t{0}, 64);
    exact_sum a = swap ? full : carries;
    a.merge(swap ? carries : full);
    exact_sum want;  // 2^128 + 2^64 - 2
    want.add_shifted(1, 128);
    want.add_shifted(~std::uint64_t{0} - 1, 0);
    CHECK(a == want);
  }
}

TEST_CASE("order and grouping don't matter, to the bit") {
  std::vector<float> values = protrain_test::magnitudes(spread_values(2, 20000, -126, 127));
  exact_sum forward;
  for (float const x : values) {
    forward.add(x);
  }
  std::reverse(values.begin(), values.end());
  exact_sum backward;
  for (float const x : values) {
    backward.add(x);
  }
  CHECK(forward == backward);
  for (std::size_t const ranks : {2U, 3U, 8U}) {
    std::vector<exact_sum> part(ranks);
    for (std::size_t i = 0; i < values.size(); ++i) {
      part[(i * i) % ranks].add(values[i]);
    }
    exact_sum merged;
    for (exact_sum const& p : part) {
      merged.merge(p);
    }
    CHECK(merged == forward);
  }
}

TEST_CASE("2^40 and more of the largest value fit") {
  exact_sum total;
  total.add(std::numeric_limits<float>::max());
  for (int doubling = 0; doubling < 42; ++doubling) {
    exact_sum const half = total;
    total.merge(half);
  }
  CHECK(total.finite());
  CHECK(total.value() == 0x1.fffffep169);
}

TEST_CASE("what is not finite is counted, through merges") {
  exact_sum a;
  a.add(1.0F);
  a.add(std::numeric_limits<float>::infinity());
  exact_sum b;
  b.add(std::numeric_limits<float>::quiet_NaN());
  b.merge(a);
  CHECK(b.non_finite() == 2);
  CHECK(std::isnan(b.value()));
}

TEST_CASE("the bytes travel as they are") {
  exact_sum a;
  a.add(3.0F);
  exact_sum b;
  std::memcpy(&b, &a, sizeof a);
  CHECK(a == b);
}

}  // namespace exact_sum_test
