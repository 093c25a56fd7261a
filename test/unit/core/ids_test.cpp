// SPDX-License-Identifier: Apache-2.0
// Strong indices, element types, queues and categories.

#include "protrain/core/ids.hpp"

#include "protrain/core/dtype.hpp"
#include "protrain/core/queue.hpp"
#include "test/support/contract.hpp"

#include <doctest/doctest.h>

#include <concepts>
#include <set>
#include <string_view>

namespace ids_test {

namespace {

using namespace protrain;

static_assert(!std::convertible_to<chunk_id, block_id> && !std::convertible_to<int, chunk_id>);
static_assert(!chunk_id{}.valid() && chunk_id{0}.valid() && chunk_id{0} < chunk_id{1});
static_assert(make_id<block_id>(7) == block_id{7} && block_id{7}.index() == 7);

TEST_CASE("an id is a 32-bit position") {
  test::throwing_contracts const guard;
  CHECK(make_id<chunk_id>(0xFFFFFFFE).valid());
  CHECK_THROWS_AS((void)make_id<chunk_id>(0xFFFFFFFF), test::contract_broken);
  CHECK_THROWS_AS((void)make_id<chunk_id>(std::size_t{1} << 33U), test::contract_broken);
}

TEST_CASE("sizes of element types") {
  CHECK(size_of(dtype::f64) == 8);
  CHECK(size_of(dtype::f32) == 4);
  CHECK(size_of(dtype::i32) == 4);
  CHECK(size_of(dtype::bf16) == 2);
  CHECK(size_of(dtype::f16) == 2);
  CHECK(size_of(dtype::u8) == 1);
}

template <class Enum>
std::size_t distinct_names(std::size_t count) {
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < count; ++i) {
    seen.insert(name_of(static_cast<Enum>(i)));
  }
  return seen.size() - seen.count("");
}

TEST_CASE("every enumerator has a name of its own") {
  CHECK(distinct_names<queue_id>(queue_count) == queue_count);
  CHECK(distinct_names<category>(category_count) == category_count);
  CHECK(distinct_names<space>(space_count) == space_count);
  CHECK(distinct_names<dtype>(6) == 6);
  CHECK(name_of(dtype::bf16) == "bf16");
  CHECK(name_of(category::fragmentation) == "fragmentation");
  CHECK(name_of(queue_id::cpu) == "cpu");
}

}  // namespace

}  // namespace ids_test
