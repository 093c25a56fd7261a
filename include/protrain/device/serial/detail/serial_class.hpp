// SPDX-License-Identifier: Apache-2.0
#pragma once
// The serial device's class; its member functions are in serial_run.hpp.

#include "protrain/device/device.hpp"
#include "protrain/device/error.hpp"
#include "protrain/device/ledger.hpp"
#include "protrain/device/pages.hpp"
#include "protrain/device/serial/detail/checker.hpp"
#include "protrain/device/serial/detail/clock.hpp"
#include "protrain/device/serial/detail/guard.hpp"
#include "protrain/device/serial/detail/order.hpp"
#include "protrain/device/serial/hazard.hpp"
#include "protrain/device/serial/options.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace protrain::inline v0::device {

/// Checks at submission: races, reads of what nothing wrote since the lease, accesses outside
/// leases. Checks while running: copies and fills that were not declared, writes past a lease's
/// end (up to the next multiple of 256), and with `check_writes` every changed byte.
///
/// Memory is poison when reserved, when a task is the first to touch it after a lease, and again
/// after the release, each as soon as no earlier task can still want the bytes. What the caller
/// writes itself through `base` it declares with `written`.
class serial_device {
 public:
  explicit serial_device(serial_options options = {})
      : options_(options), order_(options.order, options.seed) {}
  serial_device(serial_device const&) = delete;
  serial_device& operator=(serial_device const&) = delete;
  ~serial_device() = default;

  void reserve(space where, std::uint64_t bytes);
  std::byte* base(space where) const { return of(where).data(); }

  void submit(queue_id q, std::span<touched const> declared, task work);
  event record(queue_id q);
  void wait(queue_id q, event e);
  void reset_events();

  void copy(queue_ref q, void* to, void const* from, std::uint64_t bytes);
  void zero(queue_ref q, void* to, std::uint64_t bytes);

  void lease(space where, std::uint64_t offset, std::uint64_t bytes, category what);
  void release(space where, std::uint64_t offset, std::uint64_t bytes, category what);
  void settle() { ledger_.settle(); }
  usage usage_of(space where) const { return ledger_.usage_of(where); }
  void reset_usage() { ledger_.reset(); }

  /// Runs everything. Throws device_error that quotes the first new hazard, or what a task threw.
  void synchronize();
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  /// The caller wrote these bytes through `base`; no task that touches them is queued.
  void written(space where, std::uint64_t offset, std::uint64_t bytes);

  /// All that were found, first first.
  std::span<hazard const> hazards() const { return hazards_; }
  void clear_hazards() {
    hazards_.clear();
    raised_ = 0;
  }
  work_counts work_of(queue_id q) const { return counts_[detail::index_of(q)]; }
  /// Calls that `fail_call` counts, so far.
  std::uint64_t calls() const { return calls_; }
  /// The n-th call from now fails; 0 = none.
  void fail_after(std::uint64_t n) { options_.fail_call = n == 0 ? 0 : calls_ + n; }

 private:
  struct slice {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  /// A task, or a wait for a position of another queue.
  struct entry {
    task work{};
    std::uint64_t issue = 0;
    std::uint64_t position = 0;
    slice accesses{};
    slice fresh{};
    bool is_wait = false;
    queue_id awaited = queue_id::compute;
    std::uint64_t until = 0;
  };
  struct lane {
    std::vector<entry> entries{};
    std::size_t next = 0;
  };
  struct running {
    queue_id queue = queue_id::compute;
    entry const* what = nullptr;
  };

  detail::guarded_space& of(space s) { return memory_[static_cast<std::size_t>(s)]; }
  detail::guarded_space const& of(space s) const { return memory_[static_cast<std::size_t>(s)]; }

  void issue(char const* call);
  void count_call(char const* call);
  bool idle() const;
  void fill_when_free(detail::range const& r, bool canary);
  void apply(detail::pending_fills::fill const& f);

  void run_all();
  void pass_waits();
  void pass(std::size_t q);
  void run(queue_id q, entry const& e);
  bool stopped() const;
  void finish();

  bool may_transfer(void const* at, std::uint64_t bytes, bool write);
  bool declared(space where, std::uint64_t offset, std::uint64_t bytes, bool write) const;
  void found(hazard_kind kind,
             detail::task_point const& who,
             detail::range const& r,
             std::string const& text);
  void inspect(detail::task_point const& who, entry const& e);
  bool inspect_canary(detail::task_point const& who, detail::range const& padding);
  void inspect_writes(detail::task_point const& who, entry const& e);
  void check_canaries();

  std::span<detail::checked_access const> accesses(entry const& e) const {
    return std::span(accesses_).subspan(e.accesses.first, e.accesses.count);
  }
  std::span<detail::fresh_range const> fresh(entry const& e) const {
    return std::span(fresh_).subspan(e.fresh.first, e.fresh.count);
  }

  serial_options options_;
  detail::run_order order_;
  ledger ledger_{};
  detail::clocks clocks_{};
  detail::checker checker_{};
  detail::pending_fills fills_{};
  std::array<detail::guarded_space, space_count> memory_{};
  std::array<lane, queue_count> lanes_{};
  detail::vector_clock done_{};
  std::vector<detail::checked_access> accesses_{};
  std::vector<detail::fresh_range> fresh_{};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> written_{};
  std::vector<hazard> hazards_{};
  std::size_t raised_ = 0;
  std::array<work_counts, queue_count> counts_{};
  std::exception_ptr failure_{};
  running running_{};
  std::uint64_t issued_ = 0;
  std::uint64_t calls_ = 0;
};

}  // namespace protrain::inline v0::device
