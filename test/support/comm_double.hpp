// SPDX-License-Identifier: Apache-2.0
#pragma once
// A communicator whose n-th call of a kind fails on this rank.

#include "protrain/comm/communicator.hpp"
#include "protrain/comm/error.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/core/dtype.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/device/device.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace protrain::test {

enum class comm_call : std::uint8_t { reduce_scatter_ordered, all_gather, sum };
inline constexpr std::size_t comm_call_count = 3;

constexpr std::string_view name_of(comm_call c) noexcept {
  constexpr std::array<std::string_view, comm_call_count> names{
      "reduce_scatter_ordered", "all_gather", "sum"};
  return names[static_cast<std::size_t>(c)];
}

/// One rank of a thread group.
class faulty_comm {
 public:
  faulty_comm(comm::thread_group& group, std::uint32_t rank) : inner_(group, rank) {}

  /// The n-th call of that kind from now fails; 0 = none.
  void fail(comm_call what, std::uint64_t nth) {
    what_ = what;
    fail_at_ = nth;
    for (auto& c : counts_) {
      c = 0;
    }
  }
  std::uint64_t calls(comm_call what) const { return counts_[static_cast<std::size_t>(what)]; }

  std::uint32_t rank() const noexcept { return inner_.rank(); }
  std::uint32_t size() const noexcept { return inner_.size(); }
  void reduce_scatter_ordered(device::queue_ref q,
                              std::byte* data,
                              std::byte* staging,
                              std::uint64_t elements,
                              dtype type) {
    count(comm_call::reduce_scatter_ordered);
    inner_.reduce_scatter_ordered(q, data, staging, elements, type);
  }
  void all_gather(device::queue_ref q, std::byte* data, std::uint64_t bytes_per_rank) {
    count(comm_call::all_gather);
    inner_.all_gather(q, data, bytes_per_rank);
  }
  std::uint64_t sum(std::uint64_t n) {
    count(comm_call::sum);
    return inner_.sum(n);
  }
  void abort(std::string_view why) noexcept { inner_.abort(why); }
  std::vector<std::uint32_t> absent(queue_id q) { return inner_.absent(q); }

 private:
  void count(comm_call what) {
    std::uint64_t const n = ++counts_[static_cast<std::size_t>(what)];
    if (what == what_ && n == fail_at_) {
      throw comm::comm_error(
          rank(), std::string(name_of(what)) + ": injected fault at call " + std::to_string(n));
    }
  }

  comm::threads inner_;
  comm_call what_ = comm_call::sum;
  std::uint64_t fail_at_ = 0;
  std::array<std::atomic<std::uint64_t>, comm_call_count> counts_{};
};
static_assert(comm::communicator<faulty_comm>);

}  // namespace protrain::test
