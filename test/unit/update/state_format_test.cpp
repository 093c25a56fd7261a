// SPDX-License-Identifier: Apache-2.0
// State formats: the laws over shipped and foreign ones, and the bytes of a job.

#include "protrain/update/state_format.hpp"

#include "test/law/state_format.hpp"

#include <doctest/doctest.h>

namespace {

using namespace protrain;

/// A foreign format: fp16 value; fp32 master, m and v.
struct master_beside {
  using policy_tag = update::state_format_tag;
  static constexpr model::state_format format = model::state_format::separate_master;
  static constexpr std::uint64_t value_bytes = 2;
  static constexpr std::uint64_t state_bytes = 12;
  bool operator==(master_beside const&) const = default;
};

/// A format with a value, which sizes don't depend on.
struct rounded {
  using policy_tag = update::state_format_tag;
  static constexpr model::state_format format = model::state_format::split_master;
  static constexpr std::uint64_t value_bytes = 2;
  static constexpr std::uint64_t state_bytes = 10;
  std::uint64_t seed = 5;
  bool operator==(rounded const&) const = default;
};

TEST_CASE_TEMPLATE_INVOKE(
    test::state_format_laws, update::fp32, update::split_master, master_beside, rounded);

TEST_CASE("bytes of a job's model state, and refused mixtures") {
  using model::state_format;
  CHECK(*update::bytes_of({.type = dtype::f32, .state = state_format::fp32}) ==
        update::state_bytes{4, 8, 4});
  CHECK(*update::bytes_of({.type = dtype::bf16, .state = state_format::split_master}) ==
        update::state_bytes{2, 10, 2});
  for (model::job const& wrong :
       {model::job{.type = dtype::bf16, .state = state_format::fp32},
        model::job{.type = dtype::f32, .state = state_format::split_master},
        model::job{.type = dtype::f16, .state = state_format::split_master}}) {
    CHECK(update::bytes_of(wrong).failure().code == errc::not_allowed);
  }
}

}  // namespace
