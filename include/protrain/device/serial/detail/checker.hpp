// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks what tasks declare, at submission: every conflict ordered, every read written, every byte
// leased. The verdict doesn't depend on the order in which tasks later run.

#include "protrain/core/math.hpp"
#include "protrain/device/device.hpp"
#include "protrain/device/serial/detail/access_map.hpp"
#include "protrain/device/serial/detail/clock.hpp"
#include "protrain/device/serial/hazard.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace protrain::inline v0::device::detail {

/// A declared access, with the padding of its lease.
struct checked_access {
  range what{};
  bool read = false;
  bool write = false;
  range padding{};
};

/// Bytes that nothing has touched since they were leased.
struct fresh_range {
  range what{};
  std::uint64_t lease = 0;
};

class checker {
 public:
  void reserve(space where, std::uint64_t size) { of(where).bytes.reset(size); }
  std::uint64_t size(space where) const { return of(where).bytes.size(); }

  void lease(space where, std::uint64_t offset, std::uint64_t bytes) {
    std::uint64_t const number = ++leases_;
    of(where).leases.emplace(offset, extent{offset + bytes, number});
    of(where).bytes.each(offset, offset + bytes, [&](std::uint64_t, std::uint64_t, history& h) {
      h.lease = number;
      h.fresh = true;
      h.written = false;
    });
  }

  void release(space where, std::uint64_t offset, std::uint64_t bytes) {
    of(where).leases.erase(offset);
    of(where).bytes.each(
        offset, offset + bytes, [](std::uint64_t, std::uint64_t, history& h) { h.lease = 0; });
  }

  /// Calls visit(begin, end, vector_clock) for pieces of a range, with the entries that touch them.
  template <class Visit>
  void pieces(range const& r, Visit visit) {
    of(r.where).bytes.each(r.begin, r.end, [&](std::uint64_t b, std::uint64_t e, history& h) {
      visit(b, e, h.touched());
    });
  }

  /// Calls visit(range) for the padding of each live lease.
  template <class Visit>
  void each_padding(Visit visit) const {
    for (std::size_t s = 0; s < space_count; ++s) {
      for (auto const& [offset, lease] : spaces_[s].leases) {
        visit(padding_of(static_cast<space>(s), lease));
      }
    }
  }

  /// A task that runs after `before`: appends its accesses and the bytes it is first to touch.
  void submit(task_point const& self,
              vector_clock const& before,
              std::span<device::touched const> declared,
              std::vector<checked_access>& accesses,
              std::vector<fresh_range>& fresh,
              std::vector<hazard>& found) {
    std::size_t const first = accesses.size();
    arrival const a{self, before, fresh, fresh.size(), found, found.size()};
    for (device::touched const& t : declared) {
      if (t.bytes > 0 && (t.read || t.write)) {
        admit(a, t, accesses);
      }
    }
    auto const own = std::span<checked_access const>(accesses).subspan(first);
    for (checked_access const& access : own) {
      if (access.read) {
        read(a, access.what);
      }
    }
    for (checked_access const& access : own) {
      if (access.write) {
        write(a, access.what);
      }
    }
  }

  /// The caller wrote these bytes itself, with everything before `done` over.
  void written(range const& r, vector_clock const& done, std::vector<hazard>& found) {
    of(r.where).bytes.each(r.begin, r.end, [&](std::uint64_t b, std::uint64_t e, history& h) {
      if (!covered(h.touched(), done)) {
        found.push_back({hazard_kind::race,
                         no_task,
                         h.writer.index,
                         r.where,
                         b,
                         e,
                         "the caller writes " + text_of({r.where, b, e}) +
                             " while tasks that touch them are queued"});
      }
      if (h.lease == 0) {
        found.push_back(
            {hazard_kind::not_leased,
             no_task,
             no_task,
             r.where,
             b,
             e,
             "the caller writes " + text_of({r.where, b, e}) + ", which are in no live lease"});
      }
      h.fresh = false;
      h.written = true;
    });
  }

  /// The first task that would have touched these bytes didn't run.
  void skipped(fresh_range const& f) {
    of(f.what.where)
        .bytes.each(f.what.begin, f.what.end, [&](std::uint64_t, std::uint64_t, history& h) {
          if (h.lease == f.lease) {
            h.fresh = true;
            h.written = false;
          }
        });
  }

  /// Everything so far comes before everything later.
  void settle() {
    for (one_space& s : spaces_) {
      s.bytes.settle();
    }
  }

 private:
  struct extent {
    std::uint64_t end = 0;
    std::uint64_t number = 0;
  };
  struct one_space {
    access_map bytes{};
    std::map<std::uint64_t, extent> leases{};
  };

  /// A task that is being submitted, and where to put what comes of it.
  struct arrival {
    task_point const& self;
    vector_clock const& before;
    std::vector<fresh_range>& fresh;
    std::size_t first_fresh;
    std::vector<hazard>& found;
    std::size_t first_found;

    /// One report per kind, pair and space: the first bytes stand for the others.
    void report(hazard_kind kind,
                std::uint32_t other,
                range const& r,
                std::string const& text) const {
      for (std::size_t i = first_found; i < found.size(); ++i) {
        hazard const& h = found[i];
        if (h.kind == kind && h.other == other && h.where == r.where) {
          return;
        }
      }
      found.push_back({kind, self.index, other, r.where, r.begin, r.end, task_text(self) + text});
    }
  };

  one_space& of(space where) { return spaces_[static_cast<std::size_t>(where)]; }
  one_space const& of(space where) const { return spaces_[static_cast<std::size_t>(where)]; }

  static range padding_of(space where, extent const& lease) {
    return {where, lease.end, granules(lease.end)};
  }

  void admit(arrival const& a,
             device::touched const& t,
             std::vector<checked_access>& accesses) const {
    auto const& leases = of(t.where).leases;
    auto const next = leases.upper_bound(t.offset);
    std::uint64_t const end = checked_add(t.offset, t.bytes);
    range const r{t.where, t.offset, end};
    if (next == leases.begin() || std::prev(next)->second.end < end) {
      a.report(hazard_kind::not_leased,
               no_task,
               r,
               " touches " + text_of(r) + ", which are not inside one live lease");
      return;
    }
    accesses.push_back({r, t.read, t.write, padding_of(t.where, std::prev(next)->second)});
  }

  void read(arrival const& a, range const& r) {
    of(r.where).bytes.each(r.begin, r.end, [&](std::uint64_t b, std::uint64_t e, history& h) {
      range const piece{r.where, b, e};
      if (!h.written) {
        a.report(hazard_kind::uninitialised,
                 no_task,
                 piece,
                 " reads " + text_of(piece) + ", which nothing wrote since they were leased");
      }
      conflict(a, h.last_writer(), "reads", "writes", piece);
      take(a, h, piece);
      h.readers[index_of(a.self.queue)] = {a.self.position, a.self.index};
    });
  }

  void write(arrival const& a, range const& r) {
    std::uint64_t lease = 0;
    of(r.where).bytes.each(r.begin, r.end, [&](std::uint64_t b, std::uint64_t e, history& h) {
      range const piece{r.where, b, e};
      conflict(a, h.last_writer(), "writes", "writes", piece);
      for (std::size_t q = 0; q < queue_count; ++q) {
        conflict(a, h.last_reader(q), "writes", "reads", piece);
      }
      take(a, h, piece);
      lease = h.lease;
    });
    history now{.lease = lease, .written = true, .writer_queue = a.self.queue};
    now.writer = {a.self.position, a.self.index};
    of(r.where).bytes.assign(r.begin, r.end, now);
  }

  static void take(arrival const& a, history& h, range const& piece) {
    if (!std::exchange(h.fresh, false)) {
      return;
    }
    if (a.fresh.size() > a.first_fresh && a.fresh.back().lease == h.lease &&
        a.fresh.back().what.end == piece.begin) {
      a.fresh.back().what.end = piece.end;
    } else {
      a.fresh.push_back({piece, h.lease});
    }
  }

  /// Only the last write and the reads after it need a look: of two ordered accesses, who comes
  /// after the second comes after the first.
  static void conflict(arrival const& a,
                       task_point const& other,
                       char const* does,
                       char const* did,
                       range const& r) {
    if (other.position > 0 && other.position > a.before[index_of(other.queue)]) {
      a.report(hazard_kind::race,
               other.index,
               r,
               " " + std::string(does) + " " + text_of(r) + ", which " + task_text(other) + " " +
                   did + ": nothing orders the two");
    }
  }

  std::array<one_space, space_count> spaces_{};
  std::uint64_t leases_ = 0;
};

}  // namespace protrain::inline v0::device::detail
