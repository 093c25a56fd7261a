// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks make sure, once, that they run the same programs: others would wait for each other for ever
// or mix up what they exchange. And a rank that fails tells the others, so that none waits for it.

#include "protrain/comm/communicator.hpp"
#include "protrain/runtime/error.hpp"
#include "protrain/schedule/digest.hpp"
#include "protrain/schedule/program.hpp"

#include <cstdint>
#include <exception>
#include <span>

namespace protrain::inline v0::runtime::detail {

/// In a handler: aborts `comm` for the exception's reason.
template <comm::communicator Comm>
void abort_for_exception(Comm& comm) noexcept {
  try {
    throw;
  } catch (std::exception const& e) {
    comm.abort(e.what());
  } catch (...) {
    comm.abort("of an unknown exception");
  }
}

class agreement {
 public:
  explicit agreement(std::span<schedule::program const> programs)
      : mine_(programs.front().ranks > 1 ? schedule::digest(programs) >> 32U : 0) {}

  /// A collective of its own, the first time. Where digests differ, one of them isn't the average:
  /// its rank aborts the communicator and throws.
  template <comm::communicator Comm>
  void reach(Comm& comm) {
    if (reached_ || comm.size() == 1) {
      return;
    }
    if (comm.sum(mine_) != mine_ * comm.size()) {
      constexpr char const* why =
          "the ranks' plans differ: make one plan and give it to every rank";
      comm.abort(why);
      throw engine_error(why);
    }
    reached_ = true;
  }

 private:
  std::uint64_t mine_;  // 32 bits: sums of them fit
  bool reached_ = false;
};

}  // namespace protrain::inline v0::runtime::detail
