// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a step hangs on, as values: per queue the instruction at its head, and what that waits for.

#include "protrain/core/ids.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/runtime/error.hpp"
#include "protrain/schedule/print.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::runtime {

/// An instruction of the program that hangs.
struct placed_instruction {
  std::uint32_t index = 0;
  schedule::instruction what{};
};

enum class queue_doing : std::uint8_t {
  nothing,  ///< it is through
  waits,    ///< for instructions of other queues
  runs,     ///< its instruction began and doesn't end
  stands,   ///< its instruction might begin, but the queue doesn't run it
};

constexpr std::string_view name_of(queue_doing d) noexcept {
  constexpr std::array<std::string_view, 4> names{"is through", "waits", "runs", "stands"};
  return names[static_cast<std::size_t>(d)];
}

/// One queue.
struct queue_state {
  queue_id queue = queue_id::compute;
  queue_doing doing = queue_doing::nothing;
  placed_instruction head{};                    ///< unless it is through
  std::vector<placed_instruction> waits_for{};  ///< of `waits`: what isn't done
  std::vector<std::uint32_t> ranks{};  ///< of `runs`: that haven't come to the collective, if known
  double seconds = 0;                  ///< since it last began or ended an instruction, at least
};

/// All queues of one rank.
struct stall {
  std::uint32_t rank = 0;
  schedule::segment part = schedule::segment::step;
  double seconds = 0;  ///< since any queue got on
  std::array<queue_state, queue_count> queues{};

  /// The queue to look at first: one whose collective waits for a rank, else one that runs, else
  /// one that stands. Null if there is none.
  queue_state const* culprit() const noexcept {
    queue_state const* best = nullptr;
    auto const weight = [](queue_state const* q) {
      if (q == nullptr || q->doing == queue_doing::nothing || q->doing == queue_doing::waits) {
        return 0;
      }
      return q->doing == queue_doing::stands ? 1 : 2 + (q->ranks.empty() ? 0 : 1);
    };
    for (queue_state const& q : queues) {
      best = weight(&q) > weight(best) ? &q : best;
    }
    return best;
  }
};

/// No queue got on for `engine_options::stall_after`. `what()` is one line that names rank, queue,
/// instruction, block or chunk, and the ranks that are missing; report::stall_dump prints all.
class stall_error : public engine_error {
 public:
  stall_error(stall what, trace::trace const& facts)
      : engine_error(message(what, facts)), what_(std::make_shared<stall const>(std::move(what))) {}

  stall const& state() const noexcept { return *what_; }
  /// The rank to look at first: one that is missing in a collective, else this one.
  std::uint32_t rank() const noexcept {
    queue_state const* const at = what_->culprit();
    return at == nullptr || at->ranks.empty() ? what_->rank : at->ranks.front();
  }
  /// Of the instruction that hangs; absent where it has none.
  chunk_id chunk() const noexcept {
    queue_state const* const at = what_->culprit();
    return at == nullptr ? chunk_id{} : at->head.what.chunk;
  }

 private:
  static std::string message(stall const& s, trace::trace const& facts) {
    std::string out = "rank " + std::to_string(s.rank) + ": no queue got on for " +
                      std::to_string(static_cast<std::uint64_t>(s.seconds * 1000)) + " ms";
    queue_state const* const at = s.culprit();
    if (at == nullptr) {
      return out;
    }
    out += ": queue " + std::string(name_of(at->queue)) + " " + std::string(name_of(at->doing)) +
           (at->doing == queue_doing::stands ? " before " : " ") +
           std::string(schedule::print(at->head.what, facts).view()) + " (instruction " +
           std::to_string(at->head.index) + " of " + std::string(schedule::name_of(s.part)) + ")";
    for (std::size_t i = 0; i < at->ranks.size(); ++i) {
      out += (i == 0 ? " and waits for rank " : ", rank ") + std::to_string(at->ranks[i]);
    }
    return out;
  }

  std::shared_ptr<stall const> what_;  // copies of an exception don't throw
};

}  // namespace protrain::inline v0::runtime
