// SPDX-License-Identifier: Apache-2.0
// Whole files: any bytes, any size up to the limit, failures with names.

#include "protrain/io/file.hpp"

#include "test/unit/io/support.hpp"

#include <doctest/doctest.h>

#include <string>

namespace file_test {

using protrain::io::read_file;
using protrain::io::write_file;
using protrain_test::contains;
using protrain_test::refused;

TEST_CASE("what is written is read, for sizes around the buffer's") {
  protrain_test::scratch_folder const folder;
  for (std::size_t const n : {0U, 1U, 65535U, 65536U, 65537U, 300'000U}) {
    std::string bytes(n, '\0');
    for (std::size_t i = 0; i < n; ++i) {
      bytes[i] = static_cast<char>(i * 7);
    }
    write_file(folder / "f", bytes);
    CHECK(read_file(folder / "f") == bytes);
  }
}

TEST_CASE("missing, directory, too large, endless") {
  protrain_test::scratch_folder const folder;
  CHECK(contains(refused([&] { read_file(folder / "f"); }).what(), "can't be opened"));
  CHECK(contains(refused([&] { read_file(""); }).what(), "can't be opened"));
  CHECK(contains(refused([&] { read_file("/tmp"); }).what(), "is a directory"));
  write_file(folder / "f", "12345");
  CHECK(read_file(folder / "f", 5) == "12345");
  CHECK(contains(refused([&] { read_file(folder / "f", 4); }).what(), "larger than 4 bytes"));
  CHECK(contains(refused([&] { read_file("/dev/zero", 1U << 20U); }).what(), "larger than"));
}

TEST_CASE("a failed write names the file and leaves the old contents") {
  protrain_test::scratch_folder const folder;
  CHECK_THROWS_AS(write_file("/nonexistent/f", "x"), protrain::io::write_error);
  std::filesystem::create_directory(folder / "d");
  write_file(folder / "d/inside", "kept");
  CHECK_THROWS_AS(write_file(folder / "d", "x"), protrain::io::write_error);
  CHECK(read_file(folder / "d/inside") == "kept");
  CHECK_FALSE(std::filesystem::exists(folder / "d.part"));
}

}  // namespace file_test
