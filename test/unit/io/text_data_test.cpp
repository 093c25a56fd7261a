// SPDX-License-Identifier: Apache-2.0
// Windows of a text: pure functions of (seed, step, sample), inside the text, uniform.

#include "protrain/io/text_data.hpp"

#include "test/unit/io/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

namespace text_data_test {

using protrain::io::text_data;
using protrain_test::refused;

TEST_CASE("targets are the bytes that follow, and bytes are unsigned") {
  text_data const text("t",
                       "\x80\xff"
                       "abcdefgh",
                       4);
  for (std::uint64_t s = 0; s < 50; ++s) {
    std::vector<std::int32_t> tokens(4, -1);
    std::vector<std::int32_t> targets(4, -1);
    text.sample(1, 1, s, tokens, targets);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(targets[i] == tokens[i + 1]);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(tokens[i] >= 0);
      CHECK(targets[i] <= 255);
    }
  }
}

TEST_CASE("every window occurs, none beyond the end; about equally often") {
  text_data const text("t", "0123456789", 3);  // windows start at 0..6
  std::array<int, 7> seen{};
  for (std::uint64_t s = 0; s < 7000; ++s) {
    auto const at = text.start(42, 1 + s / 8, s % 8);
    REQUIRE(at < 7);
    ++seen[at];
  }
  for (int const n : seen) {
    CHECK(n > 850);
    CHECK(n < 1150);
  }
}

TEST_CASE("seed, step and sample each matter, and nothing else does") {
  text_data const text("t", std::string(1'000'000, 'x'), 10);
  CHECK(text.start(1, 2, 3) == text_data("u", std::string(1'000'000, 'y'), 10).start(1, 2, 3));
  std::set<std::uint64_t> const starts{text.start(1, 2, 3),
                                       text.start(2, 2, 3),
                                       text.start(1, 3, 3),
                                       text.start(1, 2, 4),
                                       text.start(1, 3, 2)};
  CHECK(starts.size() == 5);
}

TEST_CASE("a text needs one byte more than a sample") {
  CHECK(text_data("t", "abcde", 4).start(1, 1, 1) == 0);
  auto const e = refused([] { text_data const short_one("poem.txt", "abcd", 4); });
  CHECK(std::string(e.what()) == "poem.txt: has 4 bytes, a sample needs 5; name a longer text");
}

TEST_CASE("a list of files is read in its own order; a missing one is named") {
  protrain_test::scratch_folder const folder;
  protrain::io::write_file(folder / "b", "second");
  protrain::io::write_file(folder / "a", "first");
  protrain::io::write_file(folder / "list", "b\na\n\nb");
  auto const here = [&](std::string const& name) { return folder / name; };
  CHECK(protrain::io::read_listed(folder / "list", here) == "secondfirstsecond");
  protrain::io::write_file(folder / "list", "a\nnowhere\n");
  auto const e = refused([&] { protrain::io::read_listed(folder / "list", here); });
  CHECK(e.file() == folder / "nowhere");
}

}  // namespace text_data_test
