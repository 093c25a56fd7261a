// SPDX-License-Identifier: Apache-2.0
#pragma once
// What can go wrong between a plan and its engine.

#include <stdexcept>
#include <string>

namespace protrain::inline v0::runtime {

/// The plan, the model and the batch don't fit each other, or the engine can't go on. One line that
/// names what differs, and the cure.
class engine_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace protrain::inline v0::runtime
