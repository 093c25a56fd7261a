// SPDX-License-Identifier: Apache-2.0
#pragma once
// How many samples at a time: a loop around the search, which looks at a few sizes of the
// micro-batch and keeps the one with the most tokens per second.

#include "protrain/core/config.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/limits.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::inline v0::plan {

/// How many sizes are looked at. By default one that is a few per mille faster than the answer may
/// be missed: tokens per second rise for ever where nothing but a fixed cost is shared by more samples.
struct micro_batch_limits {
  std::uint64_t most = 1U << 20U;  ///< samples
  std::uint32_t gain = 10;     ///< thousandths more tokens per second that make a doubling worth it
  std::uint32_t patience = 2;  ///< doublings in a row that weren't, and there are no more
  std::uint32_t fineness = 16;  ///< gaps of a size / fineness aren't looked into; 0: all are
  std::uint32_t searches = 32;  ///< one for each size
  bool operator==(micro_batch_limits const&) const = default;
};

/// A size that was looked at, and the plan that was found for it.
struct micro_batch_seen {
  std::uint64_t micro_batch = 0;
  bool fits = false;
  std::uint64_t tokens = 0;       ///< of a step, over all ranks
  picoseconds iteration{};        ///< 0 where it doesn't fit, as the rest
  std::uint64_t device_peak = 0;  ///< bytes
  bool proven = false;            ///< no plan for this size is faster
  bool operator==(micro_batch_seen const&) const = default;
};

/// For people; 0 where it doesn't fit. `faster` compares exactly.
constexpr double tokens_per_second(micro_batch_seen const& s) {
  return s.fits ? static_cast<double>(s.tokens) / std::max(s.iteration.seconds(), 1e-12) : 0;
}

/// Whether `a` makes more tokens per second than `b`; what doesn't fit makes none.
/// `by`: thousandths of b's that `a` must be ahead.
constexpr bool faster(micro_batch_seen const& a, micro_batch_seen const& b, std::uint32_t by = 0) {
  __extension__ using wide = unsigned __int128;
  if (!a.fits || !b.fits) {
    return a.fits && !b.fits;
  }
  return static_cast<wide>(checked_mul(a.tokens, 1000)) * b.iteration.value >
         static_cast<wide>(checked_mul(b.tokens, 1000 + by)) * a.iteration.value;
}

/// The answer: a plan for the best size, or why there is none for the smallest.
struct micro_batch_answer {
  std::uint64_t micro_batch = 1;
  result<plan, infeasible> found = infeasible{};
  std::vector<micro_batch_seen> seen{};  ///< in the order of looking
  bool limited = false;                  ///< `searches` ended it
};

namespace detail {

/// Whether `a` is to be preferred: of equally fast sizes the smaller, which needs less memory.
constexpr bool better(micro_batch_seen const& a, micro_batch_seen const& b) {
  return faster(a, b) || (a.fits && !faster(b, a) && a.micro_batch < b.micro_batch);
}

/// Doubles until little more is to be expected, then closes in on the best from both sides.
template <class Look>
class micro_batch_explorer {
 public:
  constexpr micro_batch_explorer(Look const& look, micro_batch_limits const& limits)
      : look_(look), limits_(limits) {
    limits_.most = std::min(limits_.most, std::uint64_t{1} << 62U);  // twice as many are counted
  }

  constexpr void run() {
    double_up();
    if (best_.fits && high_ > 0) {
      close_in();
    }
    if (best_.fits) {
      find_largest();
    }
  }

  constexpr std::uint64_t best() const noexcept { return best_.micro_batch; }
  constexpr bool limited() const noexcept { return limited_; }
  constexpr std::vector<micro_batch_seen> take() && { return std::move(seen_); }

 private:
  /// False where no more searches are allowed.
  constexpr bool look(std::uint64_t size) {
    limited_ = seen_.size() >= limits_.searches;
    if (!limited_) {
      seen_.push_back(look_(size));
    }
    return !limited_;
  }

  constexpr void double_up() {
    std::uint32_t idle = 0;
    for (std::uint64_t size = 1; look(size); size *= 2) {
      micro_batch_seen const& now = seen_.back();
      idle = faster(now, best_, limits_.gain) ? 0 : idle + 1;
      bool const ahead = seen_.size() == 1 || better(now, best_);
      best_ = ahead ? now : best_;
      high_ = ahead ? 0 : 2 * best_.micro_batch;
      if (size > limits_.most / 2) {
        high_ = std::min(2 * best_.micro_batch, limits_.most + 1);
        return;
      }
      if (!now.fits || idle >= limits_.patience) {
        return;
      }
    }
  }

  /// The middle of the wider gap beside the best size is next. Beyond the neighbours it is slower,
  /// if tokens per second rise to one peak.
  constexpr void close_in() {
    std::uint64_t low = best_.micro_batch / 2;
    while (true) {
      std::uint64_t const at = best_.micro_batch;
      bool const below = at - low >= high_ - at;
      std::uint64_t const gap = below ? at - low : high_ - at;
      if (gap <= closed(at) || !look(below ? low + gap / 2 : at + gap / 2)) {
        return;
      }
      std::uint64_t const middle = seen_.back().micro_batch;
      bool const ahead = better(seen_.back(), best_);
      (ahead == below ? high_ : low) = ahead ? at : middle;
      best_ = ahead ? seen_.back() : best_;
    }
  }

  /// The largest size that fits spreads a step's fixed work over most tokens, though plans may have
  /// to change on the way to it.
  constexpr void find_largest() {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    for (micro_batch_seen const& s : seen_) {
      low = s.fits ? std::max(low, s.micro_batch) : low;
    }
    for (micro_batch_seen const& s : seen_) {
      bool const above = !s.fits && s.micro_batch > low;
      high = above && (high == 0 || s.micro_batch < high) ? s.micro_batch : high;
    }
    while (high > low && high - low > closed(low) && look(low + (high - low) / 2)) {
      micro_batch_seen const& now = seen_.back();
      (now.fits ? low : high) = now.micro_batch;
      best_ = better(now, best_) ? now : best_;
    }
  }

  /// A gap beside a size that stays closed.
  constexpr std::uint64_t closed(std::uint64_t size) const {
    std::uint64_t const part = limits_.fineness == 0 ? 1 : size / limits_.fineness;
    return std::max<std::uint64_t>(part, 1);
  }

  Look const& look_;
  micro_batch_limits limits_;
  micro_batch_seen best_{};
  std::uint64_t high_ = 0;  ///< above the best; slower, or beyond `most`; 0: none is known
  std::vector<micro_batch_seen> seen_{};
  bool limited_ = false;
};

constexpr micro_batch_seen seen_of(std::uint64_t micro_batch,
                                   result<plan, infeasible> const& found) {
  if (!found) {
    return {.micro_batch = micro_batch};
  }
  return {.micro_batch = micro_batch,
          .fits = true,
          .tokens = model::tokens_per_step(found->trace.job),
          .iteration = found->predicted.iteration,
          .device_peak = found->predicted.device.peak,
          .proven = found->search.proven};
}

}  // namespace detail

/// The size of the micro-batch with the most predicted tokens per second, and its plan.
/// `facts(n)` is the job's trace for micro-batches of n samples; the rest is as for `make`.
/// Looks at 1, 2, 4, ... until a size doesn't fit, the last few weren't worth it, or `most` is near;
/// then at the middle of the wider gap beside the best size, until both are closed, unless it is the
/// last one; then for the largest that fits. The answer is the best of what was looked at, of equals
/// the smallest. It is that of a loop over 1 to `most` where tokens per second rise to one peak and
/// fall from there on, and no limit ends it: `gain` and `fineness` are 0, searches are left. If not
/// even 1 fits, or the request is refused, that is the answer. Equal inputs give equal answers. The
/// number of searches grows with the logarithm of the best size.
template <class Make, class Policies = policies<>>
  requires requires(Make const& facts, std::uint64_t n) {
    { facts(n) } -> std::convertible_to<trace::trace>;
  }
constexpr micro_batch_answer search_micro_batch(Make const& facts,
                                                hw::machine const& m,
                                                budget const& b,
                                                Policies const& rules = {},
                                                request const& wanted = {},
                                                limits const& most = {},
                                                micro_batch_limits const& sizes = {}) {
  PROTRAIN_EXPECT(sizes.most > 0 && sizes.searches > 0, "a size of 1 is always looked at");
  micro_batch_answer out{};
  micro_batch_seen best{};
  auto const look = [&](std::uint64_t n) {
    auto found = make(trace::trace(facts(n)), m, b, rules, wanted, most);
    micro_batch_seen const s = detail::seen_of(n, found);
    if (best.micro_batch == 0 || detail::better(s, best)) {
      best = s;
      out.found = std::move(found);
    }
    return s;
  };
  detail::micro_batch_explorer explorer(look, sizes);
  explorer.run();
  out.micro_batch = explorer.best();
  out.limited = explorer.limited();
  out.seen = std::move(explorer).take();
  return out;
}

}  // namespace protrain::inline v0::plan
