// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory by category as a text table: what the plan said, and what the device counted.

#include "protrain/core/queue.hpp"
#include "protrain/device/device.hpp"
#include "protrain/report/format.hpp"
#include "protrain/schedule/memory.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace protrain::inline v0::report {

/// Whether prediction and count agree in every number.
inline bool agree(schedule::memory_report const& predicted, device::usage const& measured) {
  return predicted.peak == measured.peak && predicted.at_peak == measured.at_peak &&
         predicted.maximum == measured.maximum;
}

/// A line per category that occurs, in bytes. Columns: at the peak, and each category's own
/// maximum, as predicted and, unless `measured` is null, as measured.
inline std::string memory_table(space where,
                                schedule::memory_report const& predicted,
                                device::usage const* measured = nullptr) {
  constexpr std::size_t width = 18;
  std::string out = left(std::string(name_of(where)) + " bytes", width + 2);
  for (std::string_view const head : {"at peak", "maximum"}) {
    out += right(head, width);
    if (measured != nullptr) {
      out += right("measured", width);
    }
  }
  out += '\n';
  auto const line = [&](std::string_view name,
                        std::array<std::uint64_t, 2> said,
                        std::array<std::uint64_t, 2> counted) {
    out += "  " + left(name, width);
    for (std::size_t i = 0; i < 2; ++i) {
      out += right(std::to_string(said[i]), width);
      if (measured != nullptr) {
        out += right(std::to_string(counted[i]), width);
      }
    }
    out += '\n';
  };
  device::usage const none{};
  device::usage const& counted = measured != nullptr ? *measured : none;
  for (std::size_t c = 0; c < category_count; ++c) {
    if (predicted.maximum[c] != 0 || counted.maximum[c] != 0) {
      line(name_of(static_cast<category>(c)),
           {predicted.at_peak[c], predicted.maximum[c]},
           {counted.at_peak[c], counted.maximum[c]});
    }
  }
  line("peak", {predicted.peak, predicted.peak}, {counted.peak, counted.peak});
  return out;
}

}  // namespace protrain::inline v0::report
