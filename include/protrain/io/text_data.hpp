// SPDX-License-Identifier: Apache-2.0
#pragma once
// Training text as bytes, and windows of it: sample i of step s is a function of (seed, s, i),
// whatever the plan and the machine.

#include "protrain/core/philox.hpp"
#include "protrain/io/file.hpp"
#include "protrain/io/input_error.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::io {

/// Every byte is a token; a window of n tokens has the n bytes after it as targets.
class text_data {
 public:
  /// Throws input_error if there is no window of `length` tokens. `source` names the text.
  text_data(std::string source, std::string contents, std::uint64_t length)
      : bytes_(std::move(contents)), length_(length) {
    if (bytes_.size() <= length) {
      throw input_error(std::move(source),
                        "",
                        "",
                        "has " + std::to_string(bytes_.size()) + " bytes, a sample needs " +
                            std::to_string(length + 1) + "; name a longer text");
    }
  }

  std::uint64_t size() const noexcept { return bytes_.size(); }
  std::uint64_t hash() const noexcept { return hash_name(bytes_); }

  /// First byte of sample `sample` of step `step`: uniform over all whole windows.
  std::uint64_t start(std::uint64_t seed, std::uint64_t step, std::uint64_t sample) const {
    random_stream const stream =
        make_stream({.seed = seed, .step = step, .sample = sample, .block = data_block});
    std::uint64_t const draw =
        std::uint64_t{stream.word(0)} | (std::uint64_t{stream.word(1)} << 32U);
    __extension__ using wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<wide>(draw) * (bytes_.size() - length_)) >> 64U);
  }

  /// Writes `length` tokens, and as targets the byte that follows each.
  void sample(std::uint64_t seed,
              std::uint64_t step,
              std::uint64_t index,
              std::span<std::int32_t> tokens,
              std::span<std::int32_t> targets) const {
    std::string_view const window =
        std::string_view(bytes_).substr(start(seed, step, index), length_ + 1);
    for (std::uint64_t i = 0; i < length_; ++i) {
      tokens[i] = static_cast<unsigned char>(window[i]);
      targets[i] = static_cast<unsigned char>(window[i + 1]);
    }
  }

 private:
  std::string bytes_;
  std::uint64_t length_;
};

/// The files that a list names, one path a line, one after the other in the order of the list.
/// `resolve(path)` gives the name under which to open each.
template <class Resolve>
std::string read_listed(std::string const& list, Resolve const& resolve) {
  std::string const names = read_file(list);
  std::string out;
  for (std::size_t at = 0; at < names.size();) {
    std::size_t const end = std::min(names.find('\n', at), names.size());
    std::string const name = names.substr(at, end - at);
    at = end + 1;
    if (!name.empty()) {
      out += read_file(resolve(name));
      if (out.size() > largest_file) {
        throw input_error(
            list, "", "", "names more than " + std::to_string(largest_file) + " bytes");
      }
    }
  }
  return out;
}

}  // namespace protrain::inline v0::io
