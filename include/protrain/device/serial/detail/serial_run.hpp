// SPDX-License-Identifier: Apache-2.0
#pragma once
// Member functions of the serial device: issuing, running, inspecting.
// Included by device/serial/serial_device.hpp only.

#include "protrain/device/serial/detail/serial_class.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace protrain::inline v0::device {

// Issuing: bookkeeping in program order; no task runs here.

inline void serial_device::issue(char const* call) {
  PROTRAIN_EXPECT(running_.what == nullptr, "a task must not issue work");
  count_call(call);
}

inline void serial_device::count_call(char const* call) {
  if (++calls_ == options_.fail_call) {
    throw device_error(call, "injected fault at call " + std::to_string(calls_));
  }
}

inline void serial_device::reserve(space where, std::uint64_t bytes) {
  PROTRAIN_EXPECT(idle(), "reserve: work is queued");
  PROTRAIN_EXPECT(ledger_.usage_of(where).live == 0, "reserve: leases of this space are live");
  issue("reserve");
  std::uint64_t const limit = options_.limit[static_cast<std::size_t>(where)];
  std::uint64_t const held = of(where).size();
  if (limit != 0 && bytes > limit) {
    throw reserve_error(where, bytes, held, limit);
  }
  bool const done = of(where).try_reserve(std::max(bytes, held));
  checker_.reserve(where, of(where).size());
  if (!done) {
    throw reserve_error(where, bytes, held, limit);
  }
}

inline void serial_device::submit(queue_id q, std::span<touched const> declared, task work) {
  issue("submit");
  PROTRAIN_EXPECT(work.run != nullptr, "submit: the task has no function");
  entry e{.work = work, .issue = ++issued_};
  e.position = clocks_.advance(q);
  e.accesses.first = accesses_.size();
  e.fresh.first = fresh_.size();
  checker_.submit(
      {q, e.position, work.index}, clocks_.before(q), declared, accesses_, fresh_, hazards_);
  e.accesses.count = accesses_.size() - e.accesses.first;
  e.fresh.count = fresh_.size() - e.fresh.first;
  lanes_[detail::index_of(q)].entries.push_back(e);
}

inline event serial_device::record(queue_id q) {
  issue("record");
  return clocks_.record(q);
}

inline void serial_device::wait(queue_id q, event e) {
  issue("wait");
  detail::clocks::mark const mark = clocks_.at(e);
  entry w{.is_wait = true, .awaited = mark.queue, .until = mark.position()};
  w.position = clocks_.advance(q);
  clocks_.wait(q, mark);
  lanes_[detail::index_of(q)].entries.push_back(w);
}

inline void serial_device::reset_events() {
  PROTRAIN_EXPECT(idle(), "reset_events: work is queued");
  clocks_.reset_events();
}

inline void serial_device::lease(space where,
                                 std::uint64_t offset,
                                 std::uint64_t bytes,
                                 category what) {
  std::uint64_t const end = checked_add(offset, bytes);
  PROTRAIN_EXPECT(granules(end) <= of(where).size(), "lease: outside the reserved arena");
  ledger_.lease(where, offset, bytes, what);
  if (bytes > 0) {
    checker_.lease(where, offset, bytes);
    fill_when_free({where, end, granules(end)}, true);
  }
}

inline void serial_device::release(space where,
                                   std::uint64_t offset,
                                   std::uint64_t bytes,
                                   category what) {
  ledger_.release(where, offset, bytes, what);
  if (bytes > 0) {
    fill_when_free({where, offset, offset + bytes}, false);
    checker_.release(where, offset, bytes);
  }
}

inline void serial_device::written(space where, std::uint64_t offset, std::uint64_t bytes) {
  detail::range const r{where, offset, checked_add(offset, bytes)};
  PROTRAIN_EXPECT(r.end <= of(where).size(), "written: outside the reserved arena");
  checker_.written(r, done_, hazards_);
  of(where).uncover(r.begin, r.end);
}

inline bool serial_device::idle() const { return detail::covered(clocks_.issued(), done_); }

/// Each piece is filled as soon as the tasks issued so far that touch it are over.
inline void serial_device::fill_when_free(detail::range const& r, bool canary) {
  checker_.pieces(r,
                  [&](std::uint64_t begin, std::uint64_t end, detail::vector_clock const& after) {
                    detail::pending_fills::fill const f{{r.where, begin, end}, canary, after};
                    if (detail::covered(after, done_)) {
                      apply(f);
                    } else {
                      fills_.add(f, done_);
                    }
                  });
}

inline void serial_device::apply(detail::pending_fills::fill const& f) {
  if (f.canary) {
    of(f.what.where).fill_canary(f.what.begin, f.what.end);
  } else {
    of(f.what.where).fill_poison(f.what.begin, f.what.end);
  }
}

// Running.

inline void serial_device::synchronize() {
  PROTRAIN_EXPECT(running_.what == nullptr, "a task must not synchronize");
  bool const fault = ++calls_ == options_.fail_call;
  order_.begin();
  if (options_.check_writes) {
    std::ranges::for_each(memory_, [](auto& m) { m.take_snapshot(); });
  }
  run_all();
  finish();
  std::exception_ptr const failure = std::exchange(failure_, nullptr);
  if (std::size_t const first = std::exchange(raised_, hazards_.size());
      first < hazards_.size() && options_.on_hazard == hazard_action::raise) {
    std::size_t const more = hazards_.size() - first - 1;
    throw device_error("synchronize",
                       std::string(name_of(hazards_[first].kind)) + ": " + hazards_[first].text +
                           (more == 0 ? "" : "; and " + std::to_string(more) + " more"));
  }
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
  if (fault) {
    throw device_error("synchronize", "injected fault at call " + std::to_string(calls_));
  }
}

inline void serial_device::run_all() {
  std::array<detail::candidate, queue_count> ready{};
  for (pass_waits(); !stopped(); pass_waits()) {
    std::size_t count = 0;
    for (std::size_t q = 0; q < queue_count; ++q) {
      lane const& l = lanes_[q];
      if (l.next < l.entries.size() && !l.entries[l.next].is_wait) {
        ready[count++] = {static_cast<queue_id>(q), l.entries[l.next].issue};
      }
    }
    if (count == 0) {
      PROTRAIN_EXPECT(idle(), "serial device: queues wait for each other");
      return;
    }
    queue_id const q = ready[order_.pick(std::span(ready).first(count))].queue;
    lane const& l = lanes_[detail::index_of(q)];
    run(q, l.entries[l.next]);
    pass(detail::index_of(q));
  }
}

/// Takes every wait that is over off the heads of the queues.
inline void serial_device::pass_waits() {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t q = 0; q < queue_count; ++q) {
      lane const& l = lanes_[q];
      while (l.next < l.entries.size() && l.entries[l.next].is_wait &&
             l.entries[l.next].until <= done_[detail::index_of(l.entries[l.next].awaited)]) {
        pass(q);
        moved = true;
      }
    }
  }
}

inline void serial_device::pass(std::size_t q) {
  lane& l = lanes_[q];
  done_[q] = l.entries[l.next++].position;
  fills_.advance(q, done_, [this](auto const& f) { apply(f); });
}

inline void serial_device::run(queue_id q, entry const& e) {
  for (detail::fresh_range const& f : fresh(e)) {
    of(f.what.where).fill_poison(f.what.begin, f.what.end);
  }
  for (detail::checked_access const& a : accesses(e)) {
    if (a.write) {  // even where a race let an earlier lease's canary come late
      of(a.what.where).uncover(a.what.begin, a.what.end);
    }
  }
  running_ = {q, &e};
  try {
    e.work.run(e.work.context, e.work.index, queue_ref{.id = q});
  } catch (...) {
    failure_ = std::current_exception();
  }
  running_ = {};
  ++counts_[detail::index_of(q)].tasks;
  inspect({q, e.position, e.work.index}, e);
}

inline bool serial_device::stopped() const {
  return failure_ != nullptr ||
         (options_.on_hazard == hazard_action::raise && hazards_.size() > raised_);
}

/// Drops what didn't run; everything so far comes before everything later.
inline void serial_device::finish() {
  for (lane& l : lanes_) {
    for (; l.next < l.entries.size(); ++l.next) {
      for (detail::fresh_range const& f : fresh(l.entries[l.next])) {
        checker_.skipped(f);
      }
    }
    l.entries.clear();
    l.next = 0;
  }
  accesses_.clear();
  fresh_.clear();
  done_ = clocks_.issued();
  fills_.finish([this](auto const& f) { apply(f); });
  clocks_.join();
  checker_.settle();
  std::ranges::for_each(memory_, [](auto& m) { m.drop_snapshot(); });
  check_canaries();
}

// Called by tasks.

inline void serial_device::copy(queue_ref q, void* to, void const* from, std::uint64_t bytes) {
  PROTRAIN_EXPECT(running_.what != nullptr && q.id == running_.queue,
                  "copy: call it from inside a task, with the task's queue");
  count_call("copy");
  if (bytes > 0 && may_transfer(from, bytes, false) && may_transfer(to, bytes, true)) {
    std::memcpy(to, from, bytes);
  }
  work_counts& counts = counts_[detail::index_of(q.id)];
  ++counts.copies;
  counts.copied += bytes;
}

inline void serial_device::zero(queue_ref q, void* to, std::uint64_t bytes) {
  PROTRAIN_EXPECT(running_.what != nullptr && q.id == running_.queue,
                  "zero: call it from inside a task, with the task's queue");
  count_call("zero");
  if (bytes > 0 && may_transfer(to, bytes, true)) {
    std::memset(to, 0, bytes);
  }
}

/// False if the bytes aren't declared, or reach outside an arena, and the run stops here.
inline bool serial_device::may_transfer(void const* at, std::uint64_t bytes, bool write) {
  auto const begin = reinterpret_cast<std::uintptr_t>(at);
  for (std::size_t s = 0; s < space_count; ++s) {
    auto const arena = reinterpret_cast<std::uintptr_t>(memory_[s].data());
    std::uint64_t const size = memory_[s].size();
    if (begin + bytes <= arena || arena + size <= begin) {
      continue;
    }
    if (begin >= arena && declared(static_cast<space>(s), begin - arena, bytes, write)) {
      return true;
    }
    bool const inside = begin >= arena && begin + bytes <= arena + size;
    std::uint64_t const first = begin < arena ? 0 : begin - arena;
    detail::range const r{static_cast<space>(s), first, std::min(size, begin + bytes - arena)};
    found(hazard_kind::undeclared,
          {running_.queue, running_.what->position, running_.what->work.index},
          r,
          std::string(write ? " copies or fills " : " copies from ") + detail::text_of(r) +
              ", which it doesn't declare");
    return inside && !stopped();
  }
  return true;
}

/// Whether accesses of the running task cover the bytes. It may read what it writes.
inline bool serial_device::declared(space where,
                                    std::uint64_t offset,
                                    std::uint64_t bytes,
                                    bool write) const {
  std::uint64_t at = offset;
  for (bool moved = true; moved && at < offset + bytes;) {
    moved = false;
    for (detail::checked_access const& a : accesses(*running_.what)) {
      if (a.what.where == where && (a.write || !write) && a.what.begin <= at && at < a.what.end) {
        at = a.what.end;
        moved = true;
      }
    }
  }
  return at >= offset + bytes;
}

// Inspecting.

inline void serial_device::found(hazard_kind kind,
                                 detail::task_point const& who,
                                 detail::range const& r,
                                 std::string const& text) {
  std::string const name = who.position == 0 ? std::string("a task") : detail::task_text(who);
  hazards_.push_back({kind, who.index, no_task, r.where, r.begin, r.end, name + text});
}

/// After a task: the canaries of the leases that it touched, then every byte if asked for.
inline void serial_device::inspect(detail::task_point const& who, entry const& e) {
  bool damaged = false;
  for (detail::checked_access const& a : accesses(e)) {
    damaged = inspect_canary(who, a.padding) || damaged;
  }
  if (options_.check_writes && !damaged) {
    inspect_writes(who, e);
  } else if (options_.check_writes) {
    std::ranges::for_each(memory_, [](auto& m) { m.take_snapshot(); });
  }
}

inline bool serial_device::inspect_canary(detail::task_point const& who,
                                          detail::range const& padding) {
  auto const [begin, end] = of(padding.where).damage(padding.begin, padding.end);
  if (begin == end) {
    return false;
  }
  found(hazard_kind::overrun,
        who,
        {padding.where, begin, end},
        " wrote " + detail::text_of({padding.where, begin, end}) + ", past the end of a lease at " +
            std::to_string(padding.begin));
  of(padding.where).fill_canary(begin, end);
  return true;
}

inline void serial_device::inspect_writes(detail::task_point const& who, entry const& e) {
  for (std::size_t s = 0; s < space_count; ++s) {
    auto const where = static_cast<space>(s);
    detail::guarded_space& memory = memory_[s];
    written_.clear();
    for (detail::checked_access const& a : accesses(e)) {
      if (a.write && a.what.where == where) {
        written_.emplace_back(a.what.begin, a.what.end);
      }
    }
    std::ranges::sort(written_);
    written_.emplace_back(memory.size(), memory.size());
    std::uint64_t at = 0;
    for (auto const& [begin, end] : written_) {
      std::uint64_t const changed = memory.first_change(at, std::max(at, begin));
      if (changed < begin) {
        std::uint64_t const stop = memory.end_of_change(changed, begin);
        found(hazard_kind::undeclared,
              who,
              {where, changed, stop},
              " changed " + detail::text_of({where, changed, stop}) + ", which it doesn't declare");
        memory.keep(0, memory.size());
        break;
      }
      memory.keep(begin, end);
      at = std::max(at, end);
    }
  }
}

/// Of all live leases: what a task did to a lease that it doesn't touch is found here.
inline void serial_device::check_canaries() {
  checker_.each_padding(
      [&](detail::range const& padding) { inspect_canary(detail::task_point{}, padding); });
  std::ranges::for_each(memory_, [](auto& m) { m.forget_canaries(); });
  checker_.each_padding([&](detail::range const& padding) {
    of(padding.where).fill_canary(padding.begin, padding.end);
  });
}

}  // namespace protrain::inline v0::device
