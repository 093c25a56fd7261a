// SPDX-License-Identifier: Apache-2.0
#pragma once
// The device refused the memory of a plan: its own message, and who would have held the bytes.

#include "protrain/device/error.hpp"
#include "protrain/schedule/holders.hpp"
#include "protrain/trace/trace.hpp"

#include <memory>
#include <string>
#include <utility>

namespace protrain::inline v0::runtime {

/// `what()` is one line: space, bytes asked and held, the limit if there is one, where the peak is
/// and what is largest there. report::memory_dump prints all of `holders()`.
class memory_error : public device::device_error {
 public:
  memory_error(device::device_error const& why,
               schedule::memory_holders holders,
               trace::trace const& facts)
      : device_error(why.call(),
                     why.reason() + "; " + std::string(schedule::summary(holders, facts).view()),
                     why.where()),
        holders_(std::make_shared<schedule::memory_holders const>(std::move(holders))) {}

  /// At the peak of the program that needs most.
  schedule::memory_holders const& holders() const noexcept { return *holders_; }

 private:
  std::shared_ptr<schedule::memory_holders const> holders_;  // copies of an exception don't throw
};

}  // namespace protrain::inline v0::runtime
