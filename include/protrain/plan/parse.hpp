// SPDX-License-Identifier: Apache-2.0
#pragma once
// The plan string: what a user fixes of a plan, and what the search is left to choose.

#include "protrain/core/result.hpp"
#include "protrain/core/text.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/size.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/timing.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace protrain::inline v0::plan {

inline constexpr std::uint64_t all_chunks = std::numeric_limits<std::uint64_t>::max();
/// Blocks at save level 1, 2, ...
using level_counts = std::array<std::uint64_t, trace::most_levels>;

/// Fixed values; the search chooses what is missing. Values beyond a maximum mean the maximum.
struct request {
  std::optional<std::uint64_t> persist{};
  std::optional<std::uint64_t> buffer{};
  std::optional<std::uint64_t> swap{};
  std::optional<std::uint64_t> checkpoint{};
  std::optional<std::uint64_t> interval{};
  std::optional<std::uint64_t> chunk{};  ///< bytes of values
  std::optional<std::uint64_t> defer{};
  std::optional<std::uint64_t> streamed{};  ///< chunks; `all_chunks` if every one that moves
  std::optional<level_counts> levels{};
  std::optional<std::uint64_t> gradient_slots{};
  std::optional<std::uint64_t> streaming_slots{};
  std::optional<std::uint64_t> unroll{};
  std::optional<update::timing> time{};
  std::vector<std::uint32_t> persist_set{};  ///< chunks, if `listed`
  bool listed = false;                       ///< `persist_set` replaces `persist`
  bool named = false;                        ///< a fixed policy: clamping it is no news
  bool operator==(request const&) const = default;
};

inline constexpr std::uint64_t as_many_as_there_are = 999;

/// Everything persistent, everything kept. In this and the others, chunks are updated where they
/// live.
constexpr request keep_all() {
  return {.persist = as_many_as_there_are,
          .buffer = 0,
          .swap = 0,
          .checkpoint = 0,
          .streamed = 0,
          .levels = level_counts{},
          .named = true};
}
/// Nothing persistent, three buffers, everything kept.
constexpr request offload_all() {
  return {.persist = 0,
          .buffer = 3,
          .swap = 0,
          .checkpoint = 0,
          .streamed = 0,
          .levels = level_counts{},
          .named = true};
}
/// Everything persistent, everything checkpointed.
constexpr request checkpoint_all() {
  return {.persist = as_many_as_there_are,
          .buffer = 0,
          .swap = 0,
          .checkpoint = as_many_as_there_are,
          .streamed = 0,
          .levels = level_counts{},
          .named = true};
}
/// Nothing persistent, three buffers, everything checkpointed.
constexpr request offload_and_checkpoint_all() {
  request out = offload_all();
  out.checkpoint = as_many_as_there_are;
  return out;
}

/// Nothing persistent, three buffers, as much swapped as the interval allows and the rest
/// checkpointed: the paper's layout with everything moving.
constexpr request interleaved_all() {
  request out = offload_and_checkpoint_all();
  out.swap = as_many_as_there_are;
  return out;
}

struct fixed_policy {
  std::string_view name;
  request what{};
};

/// The plans that every search compares with.
constexpr std::array<fixed_policy, 5> fixed_policies() {
  return {{{"keep_all", keep_all()},
           {"offload_all", offload_all()},
           {"checkpoint_all", checkpoint_all()},
           {"offload_and_checkpoint_all", offload_and_checkpoint_all()},
           {"interleaved_all", interleaved_all()}}};
}

namespace detail {

inline constexpr char const* plan_help =
    "not a plan: write auto, keep_all, offload_all, checkpoint_all or key=value,key=value with "
    "keys persist, buffer, swap, checkpoint, interval, chunk, update, defer, levels, slots, time, "
    "unroll";

/// Reads the items of one plan string into a request.
class plan_reader {
 public:
  constexpr result<request, parse_error> read(std::string_view s) {
    std::size_t at = 0;
    while (true) {
      std::size_t const comma = s.find(',', at);
      std::string_view const item =
          s.substr(at, comma == std::string_view::npos ? comma : comma - at);
      if (!read_item(item)) {
        return failure_;
      }
      if (comma == std::string_view::npos) {
        return out_;
      }
      at = comma + 1;
    }
  }

 private:
  constexpr bool refuse(char const* reason) {
    failure_ = {text(key_), text(value_), reason};
    return false;
  }

  constexpr bool read_item(std::string_view item) {
    std::size_t const equals = item.find('=');
    key_ = item.substr(0, equals);
    value_ = equals == std::string_view::npos ? std::string_view{} : item.substr(equals + 1);
    if (equals == std::string_view::npos) {
      return refuse(plan_help);
    }
    for (std::string_view const seen : seen_) {
      if (seen == key_) {
        return refuse("the key occurs twice");
      }
    }
    seen_.push_back(key_);
    return read_value();
  }

  constexpr bool read_value() {
    if (key_ == "persist") {
      return value_.find(':') == std::string_view::npos ? number(out_.persist) : persist_set();
    }
    if (key_ == "buffer") {
      return number(out_.buffer);
    }
    if (key_ == "swap") {
      return number(out_.swap);
    }
    if (key_ == "checkpoint") {
      return number(out_.checkpoint);
    }
    if (key_ == "interval") {
      return number(out_.interval);
    }
    if (key_ == "chunk") {
      return chunk();
    }
    if (key_ == "update") {
      return update_site();
    }
    if (key_ == "defer") {
      return number(out_.defer);
    }
    if (key_ == "levels") {
      return levels();
    }
    if (key_ == "slots") {
      return slots();
    }
    if (key_ == "unroll") {
      return number(out_.unroll);
    }
    return key_ == "time" ? time() : refuse("unknown key");
  }

  /// An integer of any length; above 64 bits the largest stands for it.
  constexpr bool integer(std::string_view s, std::uint64_t& out) {
    if (s.empty()) {
      return refuse("a number is missing");
    }
    if (s.front() == '-') {
      return refuse("negative");
    }
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    out = 0;
    for (char const c : s) {
      if (!is_digit(c)) {
        return refuse("not a number");
      }
      auto const digit = static_cast<std::uint64_t>(c - '0');
      out = out > (most - digit) / 10 ? most : out * 10 + digit;
    }
    return true;
  }
  constexpr bool number(std::optional<std::uint64_t>& out) {
    std::uint64_t n = 0;
    bool const good = integer(value_, n);
    out = n;
    return good;
  }
  constexpr bool zero(char const* reason) {
    std::uint64_t n = 0;
    return integer(value_, n) && (n == 0 || refuse(reason));
  }

  /// i:k:...; a list of one ends with a colon.
  constexpr bool persist_set() {
    std::string_view rest = value_;
    while (!rest.empty()) {
      std::size_t const colon = rest.find(':');
      std::uint64_t n = 0;
      if (!integer(rest.substr(0, colon), n)) {
        return false;
      }
      if (n >= std::numeric_limits<std::uint32_t>::max()) {
        return refuse("no chunk has that number");
      }
      if (!out_.persist_set.empty() && out_.persist_set.back() >= n) {
        return refuse("chunks of a list must ascend");
      }
      out_.persist_set.push_back(static_cast<std::uint32_t>(n));
      rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
    }
    out_.listed = true;
    return true;
  }

  constexpr bool chunk() {
    if (value_ == "per_block") {
      return refuse("chunks of one block each are not in this version: write a size");
    }
    if (!value_.empty() && value_.front() == '-') {
      return refuse("negative");
    }
    auto const size = parse_size(value_);
    if (!size) {
      return refuse(size.failure().reason);
    }
    out_.chunk = size->value;
    return true;
  }

  constexpr bool update_site() {
    constexpr std::string_view split = "split:";
    std::uint64_t n = value_ == "streamed" ? all_chunks : 0;
    if (value_.substr(0, split.size()) == split) {
      if (!integer(value_.substr(split.size()), n)) {
        return false;
      }
    } else if (value_ != "cpu" && value_ != "streamed") {
      return refuse("not an update site: write cpu, streamed or split:N for N streamed chunks");
    }
    out_.streamed = n;
    return true;
  }

  /// a:b:...; a level that isn't named has no blocks.
  constexpr bool levels() {
    std::string_view rest = value_;
    level_counts found{};
    for (std::uint64_t& n : found) {
      std::size_t const colon = rest.find(':');
      if (!integer(rest.substr(0, colon), n)) {
        return false;
      }
      if (colon == std::string_view::npos) {
        out_.levels = found;
        return true;
      }
      rest = rest.substr(colon + 1);
    }
    return refuse("a block has at most four save levels");
  }

  constexpr bool slots() {
    std::size_t const colon = value_.find(':');
    if (colon == std::string_view::npos) {
      return refuse("write gradient and streaming slots, as in slots=2:2");
    }
    std::uint64_t gradient = 0;
    std::uint64_t streaming = 0;
    if (!integer(value_.substr(0, colon), gradient) ||
        !integer(value_.substr(colon + 1), streaming)) {
      return false;
    }
    out_.gradient_slots = gradient;
    out_.streaming_slots = streaming;
    return true;
  }

  constexpr bool time() {
    if (value_ == "during_backward") {
      out_.time = update::timing::during_backward;
      return true;
    }
    if (value_ == "after_backward") {
      out_.time = update::timing::after_backward;
      return true;
    }
    if (value_ == "before_next_use") {
      out_.time = update::timing::before_next_use;
      return true;
    }
    return refuse("not an update time: write before_next_use, during_backward or after_backward");
  }

  request out_{};
  parse_error failure_{};
  std::string_view key_{};
  std::string_view value_{};
  std::vector<std::string_view> seen_{};
};

}  // namespace detail

inline constexpr char const* defer_needs_time =
    "only updates before the next use can be left to the next step: write "
    "time=before_next_use";
inline constexpr char const* levels_need_policy =
    "the bundle's assignment policy places no save levels: plan with activation::levels, or write "
    "levels=0";
inline constexpr char const* time_needs_norm =
    "the job clips, skips or is fp16: updates wait for the norm of all gradients, so write "
    "after_backward";

/// Reads a plan string. Unknown keys, negative and malformed values, and what this version
/// doesn't do are refused; ranges are the job's business and are clamped when the plan is made.
constexpr result<request, parse_error> parse(std::string_view s) {
  if (s == "auto") {
    return request{};
  }
  if (s == "keep_all") {
    return keep_all();
  }
  if (s == "offload_all") {
    return offload_all();
  }
  if (s == "checkpoint_all") {
    return checkpoint_all();
  }
  auto out = detail::plan_reader{}.read(s);
  if (out && out->defer.value_or(0) > 0) {
    std::optional<update::timing> const& time = out->time;
    if (time && *time != update::timing::before_next_use) {
      return parse_error{"defer", update::name_of(*time), defer_needs_time};
    }
  }
  return out;
}

/// The same for a known job: what the job does not allow is refused as well.
constexpr result<request, parse_error> parse(std::string_view s, model::job const& j) {
  auto out = parse(s);
  if (out) {
    std::optional<update::timing> const& time = out->time;
    if (time && !update::allowed(*time, j)) {
      return parse_error{"time", update::name_of(*time), time_needs_norm};
    }
  }
  return out;
}

}  // namespace protrain::inline v0::plan
