// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a chunk is updated.

#include "protrain/core/config.hpp"

#include <concepts>
#include <cstdint>
#include <string_view>

namespace protrain::inline v0::update {

enum class site : std::uint8_t {
  gpu,       ///< on the device, where its state lies
  cpu,       ///< on the host, where its state lies
  streamed,  ///< on the device: its state goes up from the host, part by part, and comes back
};

constexpr std::string_view name_of(site s) noexcept {
  switch (s) {
    case site::gpu:
      return "gpu";
    case site::cpu:
      return "cpu";
    case site::streamed:
      return "streamed";
  }
  return "unknown";
}

/// What a policy knows of a chunk that trains. Chunks that aren't persistent are `moving`.
struct site_facts {
  bool persistent = false;
  std::uint32_t position = 0;  ///< among the moving chunks, in forward order
  std::uint32_t moving = 0;    ///< how many there are
  std::uint32_t streamed = 0;  ///< how many of them the plan streams
};

struct site_tag {};

/// Chooses the update site of each chunk, and how many of them the planner may stream: it tries
/// every number from 0 to `most_streamed(moving)` and asks for the sites of each. Laws
/// (test/law/update.hpp): a persistent chunk updates on the GPU, another one doesn't; as many are
/// streamed as the facts say; never more than are moving; equal inputs give equal answers.
template <class P>
concept site_policy = std::regular<P> && std::same_as<typename P::policy_tag, site_tag> &&
                      requires(P const& p, site_facts const& chunk, std::uint32_t moving) {
                        { p.most_streamed(moving) } noexcept -> std::same_as<std::uint32_t>;
                        { p.choose(chunk) } noexcept -> std::same_as<site>;
                      };

/// The CPU and the links share the work, as the planner finds best. The first chunks in forward
/// order are streamed: their gradients come last, when the links have little else left to bring,
/// and the next step waits for them while the device has nothing else to do. (Simulated for a GPT-2
/// of 10B in 17 chunks at an H200's rates with 24 GiB, 4 of 15 streamed: the first 1.60 s a step,
/// spread evenly 1.79 s, the last 2.26 s, none 2.11 s; with clipping 1.76, 1.83, 1.89, 2.27 s.)
struct cpu_or_streamed {
  using policy_tag = site_tag;
  constexpr std::uint32_t most_streamed(std::uint32_t moving) const noexcept { return moving; }
  constexpr site choose(site_facts const& chunk) const noexcept {
    if (chunk.persistent) {
      return site::gpu;
    }
    return chunk.position < chunk.streamed ? site::streamed : site::cpu;
  }
  bool operator==(cpu_or_streamed const&) const = default;
};
static_assert(site_policy<cpu_or_streamed>);

/// The paper's: where the chunk lives.
struct gpu_if_persistent {
  using policy_tag = site_tag;
  constexpr std::uint32_t most_streamed(std::uint32_t) const noexcept { return 0; }
  constexpr site choose(site_facts const& chunk) const noexcept {
    return chunk.persistent ? site::gpu : site::cpu;
  }
  bool operator==(gpu_if_persistent const&) const = default;
};
static_assert(site_policy<gpu_if_persistent>);

}  // namespace protrain::inline v0::update
