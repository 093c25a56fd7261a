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

/// Most scratch inside one operator, of all passes.
struct operator_need {
  std::string name{};
  std::uint64_t scratch = 0;
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
  f.random = {.seed = job.seed, .block = b.value};
  return f;
}

namespace detail {

/// Collects operators from a scope.
struct operator_log {
  memory_need* need;

  observer watch() noexcept {
    return {this, [](void*, std::string_view, device::queue_ref) {}, &operator_log::leave};
  }
  static void leave(void* self,
                    std::string_view name,
                    device::queue_ref,
                    std::uint64_t scratch) noexcept {
    auto& list = static_cast<operator_log*>(self)->need->operators;
    auto const at = std::ranges::find(list, name, &operator_need::name);
    if (at == list.end()) {
      list.push_back({std::string(name), scratch});
    } else {
      at->scratch = std::max(at->scratch, scratch);
    }
  }
};

}  // namespace detail

/// Calls the block's rebuild, which has to make all that was dropped.
inline void run_rebuild(block_entry const& e, scope& s, tensor_view x) {
  e.rebuild(e.object, s, x);
  s.require_rebuilt();
}

namespace detail {

/// One pass in a dry frame; returns its saved bytes and its most scratch.
struct dry_bytes {
  std::uint64_t saved = 0;
  std::uint64_t dropped = 0;
  std::uint64_t scratch = 0;
};
inline dry_bytes dry_run_once(frame f, observer const& watch, saved_table& slots) {
  block_entry const& e = *f.entry;
  f.dry = true;
  f.watch = &watch;
  f.slots = &slots;
  scope s(f);
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
  detail::operator_log log{&need};
  observer const watch = log.watch();
  saved_table slots{};
  saved_table evaluated{};
  auto const run = [&](pass p, saved_table& into, std::uint32_t level = 0) {
    frame f = make_frame(e, job, b, p);
    f.level = level;
    return detail::dry_run_once(f, watch, into);
  };
  detail::dry_bytes const forward = run(pass::forward, slots);
  need.slots = slots.rows().size();
  detail::dry_bytes const again = run(pass::recompute, slots);
  if (slots.rows().size() != need.slots) {
    throw block_error(e.name, "recompute", "recompute saves fewer tensors than forward");
  }
  need.scratch_backward = run(pass::backward, slots).scratch;
  detail::dry_bytes const evaluate = run(pass::evaluate, evaluated);
  need.saved = std::max(forward.saved, evaluate.saved);
  need.scratch_forward = std::max({forward.scratch, again.scratch, evaluate.scratch});
  for (std::uint32_t level = 1; level <= e.levels.size(); ++level) {
    detail::dry_bytes const first = run(pass::forward, slots, level);
    detail::dry_bytes const rebuild = run(pass::rebuild, slots, level);
    need.levels.push_back(
        {.saved = first.saved, .dropped = first.dropped, .scratch = rebuild.scratch});
  }
  return need;
}

}  // namespace protrain::inline v0::block
