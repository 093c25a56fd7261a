// SPDX-License-Identifier: Apache-2.0
#pragma once
// The log of a training run: one JSON object a line, in which equal lines mean equal bits.

#include "protrain/core/queue.hpp"
#include "protrain/io/file.hpp"
#include "protrain/io/input_error.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace protrain::inline v0::io {

/// Bytes by category, measured or predicted.
struct category_bytes {
  std::array<std::uint64_t, category_count> at_peak{};
  std::array<std::uint64_t, category_count> maximum{};
  bool operator==(category_bytes const&) const = default;
};

/// What a step took, as the device counted and as the plan said.
struct memory_record {
  std::uint64_t device_peak = 0;
  std::uint64_t device_peak_predicted = 0;
  std::uint64_t host_pinned = 0;
  category_bytes measured{};   ///< of the device
  category_bytes predicted{};  ///< of the device
};

struct step_record {
  std::uint64_t step = 0;  ///< from 1
  float loss = 0;
  float grad_norm = 0;
  float grad_norm_clipped = 0;
  std::uint64_t tokens = 0;
  double seconds = 0;
  std::optional<memory_record> memory{};  ///< absent for a run without an engine
  bool skipped = false;
};

/// The shortest decimal that reads back as the same number; null if it is none.
template <class T>
void append_number(std::string& out, T x) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(x)) {
      out += "null";
      return;
    }
  }
  char digits[40] = {};
  out.append(std::begin(digits), std::to_chars(std::begin(digits), std::end(digits), x).ptr);
}

/// 8 lower-case hex digits of an fp32.
inline std::string bits_of(float x) {
  auto bits = std::bit_cast<std::uint32_t>(x);
  std::string out(8, '0');
  for (std::size_t i = 8; i > 0; --i, bits >>= 4U) {
    out[i - 1] = "0123456789abcdef"[bits & 15U];
  }
  return out;
}

namespace detail {

/// Builds one object; names need no escapes.
class line_writer {
 public:
  template <class T>
  line_writer& number(std::string_view name, T x) {
    append_number(key(name), x);
    return *this;
  }
  line_writer& word(std::string_view name, std::string_view literal) {
    key(name) += literal;
    return *this;
  }
  line_writer& bits(std::string_view name, float x) {
    ((key(name) += '"') += bits_of(x)) += '"';
    return *this;
  }
  std::string finish() { return (out_ += '}'); }

 private:
  std::string& key(std::string_view name) {
    out_ += out_.size() > 1 ? ",\"" : "\"";
    return ((out_ += name) += "\":");
  }
  std::string out_ = "{";
};

/// Device memory has no `swapped`.
inline std::string categories(category_bytes const& b) {
  line_writer out;
  for (std::size_t c = 0; c < category_count; ++c) {
    if (static_cast<category>(c) != category::swapped) {
      out.word(
          name_of(static_cast<category>(c)),
          line_writer().number("at_peak", b.at_peak[c]).number("maximum", b.maximum[c]).finish());
    }
  }
  return out.finish();
}

}  // namespace detail

/// One line without its end.
inline std::string log_line(step_record const& r) {
  detail::line_writer out;
  out.number("step", r.step)
      .number("loss", r.loss)
      .bits("loss_bits", r.loss)
      .number("grad_norm", r.grad_norm)
      .bits("grad_norm_bits", r.grad_norm)
      .number("grad_norm_clipped", r.grad_norm_clipped)
      .number("tokens", r.tokens)
      .number("seconds", r.seconds)
      .number("tokens_per_second", static_cast<double>(r.tokens) / r.seconds);
  if (r.memory) {
    out.number("device_peak_bytes", r.memory->device_peak)
        .number("device_peak_predicted_bytes", r.memory->device_peak_predicted)
        .number("host_pinned_bytes", r.memory->host_pinned)
        .word("categories", detail::categories(r.memory->measured))
        .word("categories_predicted", detail::categories(r.memory->predicted));
  } else {
    for (char const* const name : {"device_peak_bytes",
                                   "device_peak_predicted_bytes",
                                   "host_pinned_bytes",
                                   "categories",
                                   "categories_predicted"}) {
      out.word(name, "null");
    }
  }
  return out.word("skipped", r.skipped ? "true" : "false").finish();
}

/// A log being written. Each line reaches the system at once, so that a run that is stopped leaves
/// whole lines.
class step_log {
 public:
  /// Starts anew. Throws input_error if the file can't be made.
  explicit step_log(std::string path)
      : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb")) {
    if (!file_) {
      throw input_error(
          path_, "", "", "can't be written: " + detail::reason(errno) + "; name another log file");
    }
  }

  void add(step_record const& r) {
    std::string const line = log_line(r) + "\n";
    if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
        std::fflush(file_.get()) != 0) {
      throw write_error(path_ + ": can't be written: " + detail::reason(errno));
    }
  }

 private:
  std::string path_;
  detail::file_handle file_;
};

}  // namespace protrain::inline v0::io
