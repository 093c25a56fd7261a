// SPDX-License-Identifier: Apache-2.0
#pragma once
// A step whose results are still on their way.

#include "protrain/core/config.hpp"
#include "protrain/runtime/batch.hpp"

#include <array>
#include <cstdint>

namespace protrain::inline v0::runtime {

namespace detail {

/// Of the last two steps: a caller may ask for one while the next is on its way.
class recent_results {
 public:
  void add(step_result const& r) { kept_[r.step % kept_.size()] = r; }
  step_result const& of(std::uint64_t step) const {
    step_result const& r = kept_[step % kept_.size()];
    PROTRAIN_EXPECT(r.step == step, "a pending step is valid until the step after the next");
    return r;
  }

 private:
  std::array<step_result, 2> kept_{};
};

}  // namespace detail

/// What `Engine::step` answers. Valid until the step after the next one is started; `get` waits for
/// the end of the step and may be called again. Dropping it drops nothing: the step runs on, and a
/// failure shows in the engine's next call.
template <class Engine>
class [[nodiscard]] pending {
 public:
  pending(Engine& engine, std::uint64_t step) : engine_(&engine), step_(step) {}

  /// Counted from 1.
  std::uint64_t step() const noexcept { return step_; }
  /// Waits. Throws what made the step fail.
  step_result get() const { return engine_->result_of(step_); }
  operator step_result() const { return get(); }  // NOLINT(google-explicit-constructor)

 private:
  Engine* engine_;
  std::uint64_t step_;
};

}  // namespace protrain::inline v0::runtime
