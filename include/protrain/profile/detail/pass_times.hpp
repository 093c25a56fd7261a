// SPDX-License-Identifier: Apache-2.0
#pragma once
// The times of one pass over a block: all of it, and each operator's own.

#include "protrain/block/frame.hpp"
#include "protrain/core/units.hpp"
#include "protrain/device/device.hpp"
#include "protrain/profile/hooks.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::profile::detail {

struct pass_times {
  picoseconds total{};
  std::vector<picoseconds> operators{};  ///< by position in the trace's list
};

/// The pass of median time, the lower one of two: its operators belong to its total.
inline pass_times const& median(std::vector<pass_times>& of) {
  auto const middle = of.begin() + static_cast<std::ptrdiff_t>((of.size() - 1) / 2);
  std::ranges::nth_element(of, middle, {}, &pass_times::total);
  return *middle;
}

/// Listens to the operators of one pass after the other. What the block does to names that its dry
/// run didn't have counts for no operator.
template <device::device Device>
class recorder {
 public:
  recorder(stopwatch<Device> watch, std::vector<std::string> operators)
      : watch_(watch), known_(operators.size()), names_(std::move(operators)) {}

  block::observer observe() noexcept { return {this, &recorder::enter, &recorder::leave}; }

  /// Around the pass, in its task.
  void start(device::queue_ref q) {
    watch_.reset();
    events_.clear();
    open_.clear();
    failed_in_ = none;
    lost_ = nullptr;
    unwinding_ = std::uncaught_exceptions();
    begin_ = watch_.now(q);
  }
  void stop(device::queue_ref q) { end_ = watch_.now(q); }

  /// The operator that an exception came from; empty if from none.
  std::string failed_in() const { return failed_in_ == none ? std::string() : names_[failed_in_]; }

  /// After `synchronize`.
  pass_times times() const {
    if (lost_ != nullptr) {
      std::rethrow_exception(lost_);
    }
    double const first = watch_.seconds(begin_);
    pass_times out{.total = between(first, watch_.seconds(end_)),
                   .operators = std::vector<picoseconds>(known_)};
    std::vector<std::size_t> open;
    picoseconds last{};
    for (event const& e : events_) {
      picoseconds const at = std::max(last, between(first, watch_.seconds(e.at)));
      if (!open.empty() && open.back() < known_) {
        out.operators[open.back()] += at - last;
      }
      if (e.row == none) {
        open.pop_back();
      } else {
        open.push_back(e.row);
      }
      last = at;
    }
    return out;
  }

 private:
  using mark = typename stopwatch<Device>::mark;
  static constexpr std::size_t none = ~std::size_t{0};
  struct event {
    std::size_t row = none;  // of the operator that is entered; none: the innermost is left
    mark at{};
  };

  static void enter(void* self, std::string_view name, device::queue_ref q) {
    static_cast<recorder*>(self)->enter(name, q);
  }
  static void leave(void* self,
                    std::string_view,
                    device::queue_ref q,
                    std::uint64_t /*scratch*/) noexcept {
    static_cast<recorder*>(self)->leave(q);
  }

  /// Makes room for the ends of all that are open, since leaving must not allocate.
  void enter(std::string_view name, device::queue_ref q) {
    auto const at = std::ranges::find(names_, name);
    auto const row = static_cast<std::size_t>(at - names_.begin());
    if (at == names_.end()) {
      names_.emplace_back(name);
    }
    open_.reserve(open_.size() + 1);
    std::size_t const room = events_.size() + 2 + open_.size();
    if (events_.capacity() < room) {
      events_.reserve(2 * room);
    }
    events_.push_back({row, watch_.now(q)});
    open_.push_back(row);
  }

  void leave(device::queue_ref q) noexcept {
    if (failed_in_ == none && std::uncaught_exceptions() > unwinding_) {
      failed_in_ = open_.back();
    }
    open_.pop_back();
    try {
      events_.push_back({none, watch_.now(q)});
    } catch (...) {
      lost_ = std::current_exception();
    }
  }

  stopwatch<Device> watch_;
  std::size_t known_;
  std::vector<std::string> names_;
  std::vector<event> events_{};
  std::vector<std::size_t> open_{};
  std::size_t failed_in_ = none;
  int unwinding_ = 0;
  std::exception_ptr lost_{};
  mark begin_{};
  mark end_{};
};

}  // namespace protrain::inline v0::profile::detail
