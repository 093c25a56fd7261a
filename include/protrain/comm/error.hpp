// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a collective throws when it can't be completed.

#include "protrain/core/config.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>

namespace protrain::inline v0::comm {

/// `what()` names queue, collective and ranks. Every rank of the job gets one: none may go on.
class comm_error : public std::runtime_error {
 public:
  comm_error(std::uint32_t rank, std::string const& what) : std::runtime_error(what), rank_(rank) {}

  /// The rank to look at first: the one that aborted, is missing, or called something else.
  std::uint32_t rank() const noexcept { return rank_; }

 private:
  std::uint32_t rank_;
};

}  // namespace protrain::inline v0::comm
