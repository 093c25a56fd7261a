// SPDX-License-Identifier: Apache-2.0
// Extents from any integers, checked access, empty and absent tensors.

#include "protrain/block/tensor_view.hpp"

#include "test/unit/block/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>

namespace tensor_view_test {

namespace {

using protrain::bfloat16;
using protrain::dtype;
using protrain::extents;
using protrain::tensor_view;
using protrain::test::refusal;

static_assert(extents{}.rank == 0 && extents{}.elements() == 1);
static_assert(extents{2, std::uint64_t{3}, short{4}}.elements() == 24);
static_assert(extents{5, 0, 7}.elements() == 0);
static_assert(extents{2, 3} != extents{3, 2} && extents{2} != extents{2, 1});
static_assert(tensor_view{}.empty() && !tensor_view{});
static_assert(tensor_view{nullptr, dtype::bf16, {3, 3}}.bytes() == 18);
static_assert(protrain::block::dtype_of<float const> == dtype::f32);

}  // namespace

TEST_CASE("elements are those of the dtype, and of no other") {
  std::array<float, 4> data{1, 2, 3, 4};
  tensor_view const t{data.data(), dtype::f32, {2, 2}};
  CHECK(t.as<float>()[3] == 4);
  CHECK(t.as<float const>() == data.data());
  CHECK(t.elements_as<float>().size() == 4);
  CHECK(refusal([&] { t.as<bfloat16>(); }) ==
        "tensor_view::as<T>(): the tensor holds another dtype");
  CHECK(refusal([&] { t.as<std::int32_t const>(); }) != "");
}

TEST_CASE("absent and empty tensors have no elements to visit") {
  CHECK(tensor_view{nullptr, dtype::f32, {7}}.elements_as<float>().empty());
  std::array<float, 1> data{};
  tensor_view const empty{data.data(), dtype::f32, {0, 7}};
  CHECK(empty.empty());
  CHECK(empty.bytes() == 0);
  CHECK(static_cast<bool>(empty));
}

TEST_CASE("extents that cannot be are refused") {
  CHECK(refusal([] { extents{3, -1}; }) == "an extent is negative");
  CHECK(refusal([] { static_cast<void>((extents{2, 3}[2])); }) == "extent beyond the rank");
  CHECK(refusal([] { extents{std::uint64_t{1} << 33U, std::uint64_t{1} << 33U}.elements(); }) ==
        "64-bit product overflows");
}

}  // namespace tensor_view_test
