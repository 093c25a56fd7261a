// SPDX-License-Identifier: Apache-2.0
#pragma once
// Why there is no plan: what is short, where, by how much, and what would fit.

#include "protrain/core/queue.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/text.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/size.hpp"

#include <cstdint>
#include <string_view>

namespace protrain::inline v0::plan {

/// Either memory is short (`code` is no_device_memory or no_host_memory), or the request or the
/// job is refused (any other code; `reason` says why and `number` what about).
struct infeasible {
  errc code = errc::none;
  char const* reason = "";
  std::uint64_t number = 0;
  std::uint64_t short_device = 0;  ///< raise the GPU budget by this and `nearest` fits,
  std::uint64_t short_host = 0;    ///< together with this much more for the host
  std::uint64_t needs_device = 0;  ///< GPU budget of `nearest`: with reserve and outside memory
  std::uint64_t needs_host = 0;    ///< host budget of `nearest`: of all local ranks
  numbers nearest{};               ///< the plan that lacks least
  constexpr bool lacks_memory() const noexcept {
    return code == errc::no_device_memory || code == errc::no_host_memory;
  }
  /// Where memory is short; the GPU where both are.
  constexpr space where() const noexcept {
    return code == errc::no_host_memory ? space::host : space::device;
  }
  /// By how much, there.
  constexpr std::uint64_t short_bytes() const noexcept {
    return where() == space::host ? short_host : short_device;
  }
  constexpr bool operator==(infeasible const& other) const {
    return code == other.code && std::string_view(reason) == std::string_view(other.reason) &&
           number == other.number && short_device == other.short_device &&
           short_host == other.short_host && needs_device == other.needs_device &&
           needs_host == other.needs_host && nearest == other.nearest;
  }

  /// A sentence or two for people.
  constexpr text explanation() const {
    text out;
    if (short_device == 0 && short_host == 0) {
      out += std::string_view(reason);
      return out;
    }
    if (short_device > 0) {
      out += "the GPU budget is short by ";
      out += short_device;
      out += " bytes";
    }
    if (short_host > 0) {
      out += short_device > 0 ? std::string_view(" and the host budget by ")
                              : std::string_view("the host budget is short by ");
      out += short_host;
      out += " bytes";
    }
    out += "; nearest is ";
    out += print(nearest).view();
    out += ", which needs ";
    out += needs_device;
    out += " bytes of GPU memory and ";
    out += needs_host;
    out += " bytes of host memory";
    return out;
  }
};

}  // namespace protrain::inline v0::plan
