// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a block without memory and without kernels: what is left are its requests, hence the bytes
// it needs, exactly.

#include "protrain/block/scope.hpp"
#include "protrain/model/job.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace protrain::inline v0::block {

/// Bytes of the operators of one name.
struct operator_need {
  std::string name{};
  std::uint64_t scratch = 0;  ///< most inside one, of all passes
  std::uint64_t saved = 0;    ///< inside, but not inside a deeper one; of forward
  /// Taken before one, outside any, since the one before or the pass's start; of forward and
  /// backward.
  std::uint64_t before = 0;
  bool operator==(operator_need const&) const = default;
};

/// What a save level asks for.
struct level_need {
  std::uint64_t saved = 0;
  std::uint64_t dropped = 0;
  std::uint64_t scratch = 0;  ///< of the rebuild
  bool operator==(level_need const&) const = default;
};

/// Bytes that one block needs for one micro-batch; tensors are rounded up to granules.
struct memory_need {
  std::uint64_t saved = 0;
  std::uint64_t slots = 0;            ///< saved tensors, those that alias x included
  std::uint64_t scratch_forward = 0;  ///< also of recompute and evaluate
  std::uint64_t scratch_backward = 0;
  std::vector<level_need> levels{};        ///< level k is levels[k - 1]
  std::vector<operator_need> operators{};  ///< by name, in order of first use
  bool operator==(memory_need const&) const = default;
};

/// The parts of a frame that don't depend on memory: whole micro-batch, step 0, sample 0.
inline frame make_frame(block_entry const& e, model::job const& job, block_id b, pass p) {
  frame f{.entry = &e, .pass = p};
  f.x = e.input.at(nullptr);
  f.samples = job.micro_batch;
  f.guard = model::guard_bytes(job);
  f.random = {.seed = job.seed, .block = b.value};
  return f;
}

namespace detail {

/// Collects operators from a scope.
class operator_log {
 public:
  explicit operator_log(memory_need& need) : need_(&need) {}

  observer watch() noexcept { return {this, &operator_log::enter, &operator_log::leave}; }

  /// The pass that follows is `s`; what it takes is added up if it is counted.
  void begin(scope const& s, bool counted) {
    pass_ = &s;
    counted_ = counted;
    open_.clear();
    saved_ = 0;
    taken_ = 0;
  }

 private:
  static void enter(void* self, std::string_view name, device::queue_ref) {
    static_cast<operator_log*>(self)->enter(name);
  }
  static void leave(void* self,
                    std::string_view,
                    device::queue_ref,
                    std::uint64_t scratch) noexcept {
    static_cast<operator_log*>(self)->leave(scratch);
  }

  void enter(std::string_view name) {
    auto& list = need_->operators;
    auto const at = std::ranges::find(list, name, &operator_need::name);
    auto const row = static_cast<std::size_t>(at - list.begin());
    if (at == list.end()) {
      list.push_back({.name = std::string(name)});
    }
    if (open_.empty() && counted_) {
      list[row].before += pass_->saved_used() + pass_->scratch_used() - taken_;
    }
    add_saved();
    open_.push_back(row);
  }

  void leave(std::uint64_t scratch) noexcept {
    operator_need& of = need_->operators[open_.back()];
    of.scratch = std::max(of.scratch, scratch);
    add_saved();
    open_.pop_back();
    taken_ = pass_->saved_used() + pass_->scratch_used();
  }

  /// What was saved since the last call belongs to the innermost operator.
  void add_saved() noexcept {
    if (!open_.empty() && counted_) {
      need_->operators[open_.back()].saved += pass_->saved_used() - saved_;
    }
    saved_ = pass_->saved_used();
  }

  memory_need* need_;
  scope const* pass_ = nullptr;
  bool counted_ = false;
  std::vector<std::size_t> open_{};  // operators, outermost first
  std::uint64_t saved_ = 0;          // when that was last looked at
  std::uint64_t taken_ = 0;          // when the last operator ended
};

}  // namespace detail

/// Calls the block's rebuild, which has to make all that was dropped.
inline void run_rebuild(block_entry const& e, scope& s, tensor_view x) {
  e.rebuild(e.object, s, x);
  s.require_rebuilt();
}

namespace detail {

/// One pass in a dry frame; returns its saved bytes and its most scratch. What it takes is added up
/// by operator if it is `counted`.
struct dry_bytes {
  std::uint64_t saved = 0;
  std::uint64_t dropped = 0;
  std::uint64_t scratch = 0;
};
inline dry_bytes dry_run_once(frame f, operator_log& log, bool counted, saved_table& slots) {
  block_entry const& e = *f.entry;
  observer const watch = log.watch();
  f.dry = true;
  f.watch = &watch;
  f.slots = &slots;
  scope s(f);
  log.begin(s, counted);
  tensor_view const x = e.input.at(nullptr);
  tensor_view const y = e.output.at(nullptr);
  if (f.pass == pass::backward) {
    e.backward(e.object, s, x, y, x);
  } else if (f.pass == pass::rebuild) {
    run_rebuild(e, s, x);
  } else {
    e.forward(e.object, s, x, y);
  }
  return {s.saved_used(), s.dropped_used(), s.scratch_peak()};
}

}  // namespace detail

/// What `e` asks for. Throws block_error if a recompute doesn't save what forward saved, or a
/// rebuild leaves out what was dropped, and whatever the block throws.
inline memory_need dry_pass(block_entry const& e, model::job const& job, block_id b) {
  memory_need need{};
  detail::operator_log log(need);
  saved_table slots{};
  saved_table evaluated{};
  auto const run = [&](pass p, saved_table& into, bool counted = false, std::uint32_t level = 0) {
    frame f = make_frame(e, job, b, p);
    f.level = level;
    return detail::dry_run_once(f, log, counted, into);
  };
  detail::dry_bytes const forward = run(pass::forward, slots, true);
  need.slots = slots.rows().size();
  detail::dry_bytes const again = run(pass::recompute, slots);
  if (slots.rows().size() != need.slots) {
    throw block_error(e.name, "recompute", "recompute saves fewer tensors than forward");
  }
  need.scratch_backward = run(pass::backward, slots, true).scratch;
  detail::dry_bytes const evaluate = run(pass::evaluate, evaluated);
  need.saved = std::max(forward.saved, evaluate.saved);
  need.scratch_forward = std::max({forward.scratch, again.scratch, evaluate.scratch});
  for (std::uint32_t level = 1; level <= e.levels.size(); ++level) {
    detail::dry_bytes const first = run(pass::forward, slots, false, level);
    detail::dry_bytes const rebuild = run(pass::rebuild, slots, false, level);
    need.levels.push_back(
        {.saved = first.saved, .dropped = first.dropped, .scratch = rebuild.scratch});
  }
  return need;
}

}  // namespace protrain::inline v0::block
