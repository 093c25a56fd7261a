// SPDX-License-Identifier: Apache-2.0
// State formats: the laws over shipped and foreign ones, and the bytes of a job.

#include "protrain/update/state_format.hpp"

#include "test/law/state_format.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace state_format_test {

namespace {

using namespace protrain;

/// A format with a value, which sizes don't depend on.
struct rounded {
  using policy_tag = update::state_format_tag;
  static constexpr model::state_format format = model::state_format::split_master;
  static constexpr std::uint64_t value_bytes = 2;
  static constexpr std::uint64_t state_bytes = 10;
  std::uint64_t seed = 5;
  bool operator==(rounded const&) const = default;
};

/// The least that is a format.
struct archetype {
  using policy_tag = update::state_format_tag;
  static constexpr auto format = model::state_format::fp32;
  static constexpr int value_bytes = 4;
  static constexpr int state_bytes = 8;
  bool operator==(archetype const&) const = default;
};

TEST_CASE_TEMPLATE_INVOKE(test::state_format_laws,
                          update::fp32,
                          update::split_master,
                          update::separate_master,
                          archetype,
                          rounded);

/// Breaks a law, or two.
template <std::uint64_t Value, std::uint64_t State>
struct lawless {
  using policy_tag = update::state_format_tag;
  static constexpr auto format = model::state_format::split_master;
  static constexpr std::uint64_t value_bytes = Value;
  static constexpr std::uint64_t state_bytes = State;
  bool operator==(lawless const&) const = default;
};

TEST_CASE("formats that break a law are found out") {
  using test::broken_state_format_law;
  CHECK(broken_state_format_law<lawless<2, 10>>() == "");
  CHECK(broken_state_format_law<lawless<4, 8>>() == "value_bytes is the size of the working type");
  CHECK(broken_state_format_law<lawless<2, 8>>() == "room for m, v and the master");
  CHECK(broken_state_format_law<lawless<8, 4>>() == "room for m, v and the master");
  CHECK(broken_state_format_law<lawless<2, 12>>() == "equal for equal formats");
}

TEST_CASE("bytes of a job's model state, and refused mixtures") {
  using model::state_format;
  CHECK(*update::bytes_of({.type = dtype::f32, .state = state_format::fp32}) ==
        update::state_bytes{4, 8, 4, dtype::f32, 0});
  CHECK(*update::bytes_of({.type = dtype::bf16, .state = state_format::split_master}) ==
        update::state_bytes{2, 10, 2, dtype::bf16, 2});
  for (dtype const type : {dtype::bf16, dtype::f16}) {
    CHECK(*update::bytes_of({.type = type, .state = state_format::separate_master}) ==
          update::state_bytes{2, 12, 2, type, 4});
  }
  for (model::job const& wrong :
       {model::job{.type = dtype::bf16, .state = state_format::fp32},
        model::job{.type = dtype::f32, .state = state_format::split_master},
        model::job{.type = dtype::f32, .state = state_format::separate_master},
        model::job{.type = dtype::f16, .state = state_format::fp32},
        model::job{.type = dtype::f16, .state = state_format::split_master}}) {
    CHECK(update::bytes_of(wrong).failure().code == errc::not_allowed);
  }
}

TEST_CASE("a state is arrays, one behind the other") {
  using model::state_format;
  auto const widths = [](dtype type, state_format state) {
    update::state_arrays const a =
        update::arrays_of(*update::bytes_of({.type = type, .state = state}));
    return std::vector<std::uint64_t>(a.bytes.begin(), a.bytes.begin() + a.count);
  };
  using list = std::vector<std::uint64_t>;
  CHECK(widths(dtype::f32, state_format::fp32) == list{4, 4});
  CHECK(widths(dtype::bf16, state_format::split_master) == list{2, 4, 4});
  CHECK(widths(dtype::f16, state_format::separate_master) == list{4, 4, 4});
}

TEST_CASE("a loss scale is a power of two, for fp16 alone") {
  using model::state_format;
  model::job half{.type = dtype::f16, .state = state_format::separate_master};
  for (float const good : {1.0F, 0.5F, 0x1p16F, 0x1p126F, 0x1p-126F}) {
    half.loss_scale = good;
    CHECK(update::bytes_of(half).has_value());
    CHECK(1.0F / (1.0F / good) == good);
  }
  for (float const bad : {0.0F, -2.0F, 3.0F, 1000.0F, 0x1p127F, 0x1p-127F, HUGE_VALF, NAN}) {
    half.loss_scale = bad;
    CHECK(update::bytes_of(half).failure().code == errc::not_allowed);
  }
  CHECK(!update::bytes_of({.loss_scale = 2.0F}).has_value());
  CHECK(!update::bytes_of(
             {.type = dtype::bf16, .state = state_format::split_master, .loss_scale = 2.0F})
             .has_value());
}

}  // namespace

}  // namespace state_format_test
