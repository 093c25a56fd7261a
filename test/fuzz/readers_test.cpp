// SPDX-License-Identifier: Apache-2.0
// Readers of files from outside, on their corpus, on values that break files in the field, and on
// random changes of the corpus: they take it or refuse it in one line that names the file.

#include "test/fuzz/readers.hpp"

#include "protrain/io/file.hpp"
#include "protrain/io/input_error.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace readers_test {

namespace {

using namespace protrain;

/// The files of a reader's corpus, in order of their names.
std::vector<std::string> corpus(std::string_view reader) {
  std::vector<std::string> paths;
  for (auto const& entry :
       std::filesystem::directory_iterator("test/fuzz/corpus/" + std::string(reader))) {
    paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  std::vector<std::string> out;
  for (std::string const& path : paths) {
    out.push_back(io::read_file(path));
  }
  REQUIRE(!out.empty());
  return out;
}

/// The refusal; empty if the bytes were taken.
std::string refusal(test::reader const& r, std::string_view bytes) {
  try {
    r.read(bytes);
  } catch (io::input_error const& e) {
    return e.what();
  }
  return "";
}

void check_refused(test::reader const& r, std::string const& bytes) {
  std::string const why = refusal(r, bytes);
  CAPTURE(std::string(r.name));
  CAPTURE(bytes.substr(0, 200));
  CAPTURE(why);
  CHECK(why.starts_with("input: "));
  CHECK(why.find('\n') == std::string::npos);
}

/// Where numbers begin, outside strings.
std::vector<std::size_t> numbers(std::string const& s) {
  std::vector<std::size_t> out;
  bool quoted = false;
  for (std::size_t i = 0; i < s.size(); ++i) {
    quoted = quoted != (s[i] == '"');
    bool const digit = std::isdigit(static_cast<unsigned char>(s[i])) != 0;
    bool const inside = i > 0 && (std::isalnum(static_cast<unsigned char>(s[i - 1])) != 0 ||
                                  s[i - 1] == '.' || s[i - 1] == '-' || s[i - 1] == '+');
    if (digit && !quoted && !inside) {
      out.push_back(i);
    }
  }
  return out;
}

std::string with_number(std::string s, std::size_t at, std::string_view value) {
  std::size_t const end = s.find_first_not_of("0123456789.eE+-", at);
  return s.replace(at, end - at, value);
}

constexpr std::string_view extremes[] = {"0",
                                         "-1",
                                         "1.5",
                                         "4611686018427387904",
                                         "18446744073709551615",
                                         "18446744073709551616",
                                         "-9223372036854775808",
                                         "1e308",
                                         "1e999",
                                         "null",
                                         "true",
                                         "\"64\"",
                                         "[]",
                                         "{}"};

std::string changed(std::string s, std::string const& other, test::random_source& dice) {
  std::size_t const at = dice.between(0, s.size() - 1);
  std::size_t const length = dice.between(1, std::min<std::size_t>(s.size() - at, 40));
  switch (dice.between(0, 5)) {
    case 0:
      s[at] = static_cast<char>(dice.between(0, 255));
      return s;
    case 1:
      return s.erase(at, length);
    case 2:
      return s.insert(at, s.substr(dice.between(0, s.size() - 1), length));
    case 3:
      return s.insert(at, other.substr(dice.between(0, other.size() - 1), length));
    case 4:
      return s.substr(0, at);
    default: {
      auto const all = numbers(s);
      if (all.empty()) {
        return s;
      }
      return with_number(s,
                         all[dice.between(0, all.size() - 1)],
                         extremes[dice.between(0, std::size(extremes) - 1)]);
    }
  }
}

}  // namespace

TEST_CASE("the corpus: what is meant to be read is") {
  for (test::reader const& r : test::readers) {
    std::size_t taken = 0;
    for (std::string const& bytes : corpus(r.name)) {
      std::string const why = refusal(r, bytes);
      taken += why.empty() ? 1U : 0U;
      CHECK(why.find('\n') == std::string::npos);
    }
    CAPTURE(std::string(r.name));
    CHECK(taken > 0);
  }
}

TEST_CASE("no JSON, too much of it, or none at all") {
  for (test::reader const& r : test::readers) {
    for (std::string const& bytes :
         {std::string(),
          std::string("\0", 1),
          std::string("not JSON"),
          std::string("{"),
          std::string("[]"),
          std::string("null"),
          std::string("{}"),
          std::string("\xEF\xBB\xBF{"),
          std::string("\xFF\xFE"),
          std::string("{\"model_type\": \"\xC3\x28\"}"),
          std::string(100'000, '['),
          "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}",
          [] {
            std::string deep;
            for (int i = 0; i < 100'000; ++i) {
              deep += "{\"a\":";
            }
            return deep;
          }()}) {
      check_refused(r, bytes);
    }
  }
}

TEST_CASE("each number of each file replaced by each extreme") {
  for (test::reader const& r : test::readers) {
    std::uint64_t refused = 0;
    for (std::string const& bytes : corpus(r.name)) {
      test::turns turn;
      for (std::size_t const at : numbers(bytes)) {
        for (std::string_view const value : extremes) {
          if (turn.next()) {
            std::string const why = refusal(r, with_number(bytes, at, value));
            refused += why.empty() ? 0U : 1U;
            CHECK(why.find('\n') == std::string::npos);
            CHECK((why.empty() || why.starts_with("input: ")));
          }
        }
      }
    }
    CHECK(refused > 10);
  }
}

TEST_CASE("random changes, one after the other") {
  for (test::reader const& r : test::readers) {
    auto const files = corpus(r.name);
    for (std::uint64_t seed = 0; seed < test::scaled(2000); ++seed) {
      test::random_source dice(seed);
      std::string bytes = files[dice.between(0, files.size() - 1)];
      for (std::uint64_t k = dice.between(1, 4); k > 0 && !bytes.empty(); --k) {
        bytes = changed(std::move(bytes), files[dice.between(0, files.size() - 1)], dice);
      }
      std::string const why = refusal(r, bytes);
      CAPTURE(seed);
      CAPTURE(std::string(r.name));
      CHECK(why.find('\n') == std::string::npos);
      CHECK((why.empty() || why.starts_with("input: ")));
    }
  }
}

}  // namespace readers_test
