// SPDX-License-Identifier: Apache-2.0
// The environment is set and restored, and every entry point gives the same bits in a process
// whose environment was changed by others.

#include "protrain/core/float_environment.hpp"

#include "test/unit/optim/contract_digest.hpp"
#include "test/unit/optim/support.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>

namespace float_environment_test {

namespace {

using protrain::float_environment;

/// Sets MXCSR for one scope.
class control_word {
 public:
  explicit control_word(unsigned value) : saved_(_mm_getcsr()) { _mm_setcsr(value); }
  ~control_word() { _mm_setcsr(saved_); }
  control_word(control_word const&) = delete;
  control_word& operator=(control_word const&) = delete;

 private:
  unsigned saved_;
};

constexpr unsigned masked = 0x1F80U;
constexpr unsigned flush_to_zero = 0x8000U;
constexpr unsigned denormals_are_zero = 0x0040U;
constexpr unsigned round_down = 0x2000U;
constexpr unsigned round_up = 0x4000U;

}  // namespace

TEST_CASE("the environment is the contract's inside and the caller's afterwards") {
  unsigned const theirs = masked | flush_to_zero | denormals_are_zero | round_up;
  control_word const changed{theirs};
  {
    float_environment const outer;
    CHECK(_mm_getcsr() == masked);
    {
      float_environment const inner;
      CHECK(_mm_getcsr() == masked);
    }
    float volatile third = 3.0F;
    third = 1.0F / third;  // raises "inexact"
  }
  CHECK(_mm_getcsr() == theirs);
}

TEST_CASE("no environment of the caller changes a bit") {
  for (unsigned const theirs : {masked,
                                masked | flush_to_zero,
                                masked | denormals_are_zero,
                                masked | flush_to_zero | denormals_are_zero,
                                masked | round_up,
                                masked | round_down,
                                masked | round_up | round_down}) {
    std::uint64_t got = 0;
    {
      control_word const changed{theirs};
      got = protrain_test::contract_digest();
      REQUIRE(_mm_getcsr() == theirs);
    }
    CHECK(got == protrain_test::expected_digest);
  }
}

#else

TEST_CASE("elsewhere the environment is left alone") {
  protrain::float_environment const environment;
  CHECK(protrain_test::contract_digest() == protrain_test::expected_digest);
}

#endif

}  // namespace float_environment_test
