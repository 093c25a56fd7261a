// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entry for one reader, PROTRAIN_READER, which tools/fuzz defines.

#include "protrain/io/input_error.hpp"
#include "test/fuzz/readers.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#ifndef PROTRAIN_READER
#define PROTRAIN_READER "config"
#endif

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static auto const* const reader = std::ranges::find(
      protrain::test::readers, std::string_view(PROTRAIN_READER), &protrain::test::reader::name);
  protrain::test::insist(reader != protrain::test::readers.end());
  try {
    reader->read({reinterpret_cast<char const*>(data), size});
  } catch (protrain::io::input_error const&) {
    return 0;
  }
  return 0;
}
