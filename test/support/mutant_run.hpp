// SPDX-License-Identifier: Apache-2.0
#pragma once
// Executes damaged programs, whatever verify thinks of them, and says what came of it: other bits
// than the plain loop's, a hazard, a broken contract, an error, a hang, memory that the ledger
// misses, or nothing.

#include "protrain/comm/error.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/device/ledger.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/runtime/detail/leases.hpp"
#include "protrain/runtime/detail/setup.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/schedule/digest.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/support/contract.hpp"
#include "test/support/meeting.hpp"
#include "test/support/mutant_jobs.hpp"
#include "test/support/never_runs.hpp"
#include "test/support/ranks.hpp"
#include "test/support/unverified.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::test {

/// A job's programs after one edit.
struct mutant {
  static constexpr std::uint32_t every_rank = ~std::uint32_t{0};

  std::vector<schedule::program> programs{};
  std::uint32_t rank = every_rank;  ///< whose programs these are; the others' are sound

  std::span<schedule::program const> of(mutant_job const& j, std::uint32_t who) const {
    return rank == every_rank || rank == who ? std::span(programs) : std::span(j.segments);
  }
};

enum class consequence : std::uint8_t {
  none,
  bits,      ///< another loss, norm or parameter
  hazard,    ///< that the device saw
  contract,  ///< that somebody broke
  error,     ///< of a block, the engine, the communicator or the device
  hang,      ///< every rank waits for another one, or a task for one that comes after it
  ledger,  ///< memory leased twice, returned twice or by another name, leaked, or beyond the budget
  nonsense,  ///< an index outside a table, or a task without something it works on
};
inline constexpr std::size_t consequence_count = 8;

constexpr std::string_view name_of(consequence c) noexcept {
  constexpr std::array<std::string_view, consequence_count> names{
      "none", "bits", "hazard", "contract", "error", "hang", "ledger", "nonsense"};
  return names[static_cast<std::size_t>(c)];
}

struct effect {
  consequence what = consequence::none;
  std::string text{};
};

namespace detail {

template <class A, class B>
bool starts_with(A const& whole, B const& part) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

inline bool agrees(outcome const& so_far, outcome const& good) {
  return starts_with(good.losses, so_far.losses) && starts_with(good.norms, so_far.norms) &&
         starts_with(good.clipped, so_far.clipped) &&
         starts_with(good.parameters, so_far.parameters);
}

/// Bytes behind an arena for whoever writes past the end of what it may touch.
inline std::uint64_t margin(mutant_job const& j) {
  std::uint64_t most = 0;
  for (schedule::program const& p : j.segments) {
    for (schedule::allocation const& a : p.allocations) {
      most = std::max(most, a.bytes);
    }
  }
  return 4 * most + 4096;
}

inline void train_rank(mutant_job const& j,
                       std::span<schedule::program const> programs,
                       device::serial_device& d,
                       watched_threads& comm,
                       outcome& bits) {
  for (space const where : {space::device, space::host}) {
    d.reserve(where, j.budget[static_cast<std::size_t>(where)] + margin(j));
  }
  runtime::plan_parts parts{j.model.facts, j.layout, j.segments};
  schedule::program* const place = parts.programs.data();
  runtime::engine engine(
      d, comm, j.model.table, std::move(parts), exchanging_adamw(place, programs));
  follow(
      j,
      engine,
      bits,
      [&](global_data const& data) -> auto const& { return data.of(comm.rank()); },
      [&](outcome const& so_far) { return agrees(so_far, j.good); });
}

inline effect run_rank(mutant_job const& j,
                       std::span<schedule::program const> programs,
                       device::serial_options const& options,
                       watched_threads& comm) {
  device::serial_device d(options);
  outcome bits;
  try {
    train_rank(j, programs, d, comm, bits);
  } catch (contract_broken const& e) {
    return {consequence::contract, e.what()};
  } catch (comm::comm_error const& e) {
    bool const hangs = std::string_view(e.what()).find(watched_threads::hang) != std::string::npos;
    return {hangs ? consequence::hang : consequence::error, e.what()};
  } catch (std::exception const& e) {
    return {d.hazards().empty() ? consequence::error : consequence::hazard, e.what()};
  }
  if (!d.hazards().empty()) {
    return {consequence::hazard, d.hazards().front().text};
  }
  if (d.usage_of(space::device).live + d.usage_of(space::host).live > 0) {
    return {consequence::ledger, "leases that nobody returned"};
  }
  std::string const other = difference(bits, j.good);
  return other.empty() ? effect{} : effect{consequence::bits, other};
}

/// The rank whose trouble is its own, rather than that another rank is gone.
inline effect foremost(std::vector<effect> const& of_ranks) {
  effect found;
  auto const rank_of = [](consequence c) {
    return c == consequence::none    ? 0
           : c == consequence::hang  ? 1
           : c == consequence::error ? 2
                                     : 3;
  };
  for (effect const& e : of_ranks) {
    found = rank_of(e.what) > rank_of(found.what) ? e : found;
  }
  return found;
}

/// A device that has no memory and only counts it.
struct counting_device : device::serial_device {
  device::ledger book{};
  void lease(space where, std::uint64_t offset, std::uint64_t bytes, category what) {
    book.lease(where, offset, bytes, what);
  }
  void release(space where, std::uint64_t offset, std::uint64_t bytes, category what) {
    book.release(where, offset, bytes, what);
  }
  void settle() { book.settle(); }
  device::usage usage_of(space where) const { return book.usage_of(where); }
};

inline bool beyond_budget(mutant_job const& j, std::span<schedule::program const> all) {
  return std::ranges::any_of(all, [&](schedule::program const& p) {
    return std::ranges::any_of(p.allocations, [&](schedule::allocation const& a) {
      std::uint64_t const budget = j.budget[static_cast<std::size_t>(a.where)];
      return a.bytes > budget || a.offset > budget - a.bytes ||
             a.offset + granules(a.bytes) > budget;
    });
  });
}

/// What a ledger says that is told of every lease and return.
inline effect ask_ledger(mutant_job const& j, std::span<schedule::program const> all) {
  if (beyond_budget(j, all)) {
    return {consequence::ledger, "memory beyond the budget"};
  }
  counting_device d;
  auto const live = [&] { return d.usage_of(space::device).live + d.usage_of(space::host).live; };
  try {
    for (schedule::allocation const& a : all.front().allocations) {
      if (a.carried) {
        d.lease(a.where, a.offset, a.bytes, a.what);
      }
    }
    std::uint64_t const carried = live();
    for (schedule::program const& p : all) {
      runtime::detail::leases taken(d, p);
      for (std::uint32_t i = 0; i <= p.instructions.size(); ++i) {
        taken.advance(i);
      }
      if (live() != carried) {
        return {consequence::ledger, "memory that is live after the program"};
      }
      taken.finish();
    }
  } catch (contract_broken const& e) {
    return {consequence::ledger, e.what()};
  }
  return {};
}

}  // namespace detail

/// One training on every rank in one order.
inline effect run_once(mutant_job const& j,
                       mutant const& m,
                       device::serial_options const& options) {
  auto const ranks = static_cast<std::uint32_t>(j.ranks());
  comm::thread_group group(ranks);
  waiting_room room(ranks);
  std::vector<effect> of(ranks);
  auto const body = [&](std::uint32_t rank) {
    watched_threads comm(group, room, rank);
    of[rank] = detail::run_rank(j, m.of(j, rank), options, comm);
    comm.finish();
  };
  if (ranks == 1) {
    body(0);
  } else {
    on_ranks(ranks, body);
  }
  return detail::foremost(of);
}

/// What comes of a mutant under some order: the first trouble that shows. `thorough` tries more
/// orders and compares every byte that a task didn't declare.
inline effect effect_of(mutant_job const& j, mutant const& m, bool thorough) {
  throwing_contracts const contracts;
  effect e = detail::ask_ledger(j, m.programs);
  if (e.what != consequence::none) {
    return e;
  }
  if (std::string const why = waits_for_ever(m.programs); !why.empty()) {
    return {consequence::hang, why};
  }
  if (std::string const why = never_runs(j, m.programs); !why.empty()) {
    return {consequence::nonsense, why};
  }
  using device::run_policy;
  // What the device checks at submission doesn't depend on the order.
  std::vector<device::serial_options> orders{{.order = run_policy::in_order}};
  if (thorough) {
    orders.push_back({.order = run_policy::random, .seed = j.seed});
    orders.push_back({.order = run_policy::adversarial, .seed = ~j.seed, .check_writes = true});
  }
  for (device::serial_options const& options : orders) {
    e = run_once(j, m, options);
    if (e.what != consequence::none) {
      return e;
    }
  }
  return {};
}

/// What verify says of a mutant on the first rank that objects, within the sound programs' budgets;
/// or what else an engine looks at before it runs a program.
inline schedule::verdict verdict_on(mutant_job const& j, mutant const& m) {
  for (std::uint32_t rank = 0; rank < j.ranks(); ++rank) {
    schedule::verdict const v = schedule::verify_segments(
        m.of(j, rank), j.model.facts, j.layout, j.budget[0], j.budget[1], rank);
    if (!v.ok) {
      return v;
    }
  }
  if (m.rank != mutant::every_rank &&
      schedule::digest(m.programs) != schedule::digest(j.segments)) {
    return schedule::reject(schedule::rejection::malformed,
                            "sound alone, but the ranks run different programs");
  }
  try {
    runtime::detail::check_programs({j.model.facts, j.layout, m.programs});
  } catch (runtime::engine_error const&) {
    return schedule::reject(schedule::rejection::malformed, "segments that don't make a job");
  }
  return {};
}

}  // namespace protrain::test
