// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory and the work of a probe: copies, a CPU optimizer's step, collectives.

#include "protrain/comm/communicator.hpp"
#include "protrain/core/arithmetic.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/dtype.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/core/math.hpp"
#include "protrain/device/device.hpp"
#include "protrain/device/workers.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/master.hpp"
#include "protrain/optim/threaded.hpp"
#include "protrain/profile/detail/lanes.hpp"
#include "protrain/profile/detail/work.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

namespace protrain::inline v0::profile::detail {

/// Multiplies two small matrices in plain loops.
class plain_product {
 public:
  static constexpr std::size_t n = 64;
  static constexpr std::uint64_t flops = 2 * n * n * n;

  void operator()() {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        c_[i * n + j] = 0;
      }
      for (std::size_t k = 0; k < n; ++k) {
        for (std::size_t j = 0; j < n; ++j) {
          c_[i * n + j] += a_[i * n + k] * b_[k * n + j];
        }
      }
    }
    b_[0] = ieee::settled(c_[0]) > 0 ? 0.5F : 0.25F;  // so that nothing is left out
  }

 private:
  std::vector<float> a_ = std::vector<float>(n * n, 0.5F);
  std::vector<float> b_ = std::vector<float>(n * n, 0.25F);
  std::vector<float> c_ = std::vector<float>(n * n);
};

/// Sizes of a probe's memory.
struct probe_sizes {
  std::uint64_t copy = 0;        ///< bytes of one piece
  std::uint64_t elements = 0;    ///< of one CPU update
  std::uint64_t collective = 0;  ///< bytes of the largest
};

/// Both arenas. Everything is zero to begin with.
template <device::device Device>
class probe_memory {
 public:
  probe_memory(Device& d, probe_sizes const& s) : device_(d), held_(d) {
    std::uint64_t const n = s.elements;
    d.reserve(space::device, place(device_places_, {s.copy, s.copy, s.collective, s.collective}));
    d.reserve(space::host,
              place(host_places_, {s.copy, s.copy, 2 * n, 2 * n, 4 * n, 4 * n, 2 * n}));
    prepare(space::device, queue_id::compute, device_places_);
    prepare(space::host, queue_id::cpu, host_places_);
  }

  enum device_place : std::uint8_t { dev_up, dev_down, dev_data, dev_staging };
  enum host_place : std::uint8_t { up, down, value, low, m, v, gradient };

  std::byte* at(device_place p) const {
    return device_.base(space::device) + device_places_[p].offset;
  }
  std::byte* at(host_place p) const { return device_.base(space::host) + host_places_[p].offset; }
  void touches(lane& l, device_place p, access how) const {
    touch(l.touched, space::device, device_places_[p], how);
  }
  void touches(lane& l, host_place p, access how) const {
    touch(l.touched, space::host, host_places_[p], how);
  }

 private:
  /// In the order of the enumerators; returns the end.
  static std::uint64_t place(std::vector<placed>& into, std::initializer_list<std::uint64_t> all) {
    placer next;
    for (std::uint64_t const size : all) {
      into.push_back(next.take(size));
    }
    return next.end();
  }

  void prepare(space where, queue_id q, std::vector<placed> const& places) {
    std::vector<device::touched> touched;
    for (placed const& p : places) {
      held_.take(where, p, category::staging);
      touch(touched, where, p, access::write);
    }
    device_.settle();
    auto work = [&](device::queue_ref queue) {
      for (placed const& p : places) {
        device_.zero(queue, device_.base(where) + p.offset, p.bytes);
      }
    };
    run_now(device_, q, touched, work);
  }

  Device& device_;
  leases<Device> held_;
  std::vector<placed> device_places_{};
  std::vector<placed> host_places_{};
};

/// Makes the lanes of a probe.
template <device::device Device>
class probe_lanes {
 public:
  /// The CPU optimizer has so many threads.
  probe_lanes(Device& d, probe_sizes const& s, std::uint32_t threads)
      : device_(d), sizes_(s), memory_(d, s), crew_(threads) {}

  std::uint32_t threads() const noexcept { return crew_.size(); }

  lane upload(std::uint64_t bytes) {
    lane out{.queue = queue_id::h2d, .amount = bytes};
    memory_.touches(out, memory::dev_up, access::write);
    memory_.touches(out, memory::up, access::read);
    copy(out, memory_.at(memory::dev_up), memory_.at(memory::up), bytes);
    return out;
  }
  lane download(std::uint64_t bytes) {
    lane out{.queue = queue_id::d2h, .amount = bytes};
    memory_.touches(out, memory::down, access::write);
    memory_.touches(out, memory::dev_down, access::read);
    copy(out, memory_.at(memory::down), memory_.at(memory::dev_down), bytes);
    return out;
  }
  /// Bytes read and bytes written.
  lane inside() {
    lane out{.queue = queue_id::compute, .amount = 2 * sizes_.copy};
    memory_.touches(out, memory::dev_up, access::write);
    memory_.touches(out, memory::dev_down, access::read);
    copy(out, memory_.at(memory::dev_up), memory_.at(memory::dev_down), sizes_.copy);
    return out;
  }

  /// AdamW on a split master with bf16 gradients: bytes read and bytes written.
  lane update() {
    lane out{.queue = queue_id::cpu, .amount = 26 * sizes_.elements};
    for (auto const p : {memory::value, memory::low, memory::m, memory::v}) {
      memory_.touches(out, p, access::read_write);
    }
    memory_.touches(out, memory::gradient, access::read);
    out.work = [this, step = optim::adamw{}.prepare(1e-3, 1, true)](device::queue_ref) {
      optim::update_range<optim::adamw>(
          crew_,
          step,
          1.0F,
          reinterpret_cast<bfloat16 const*>(memory_.at(memory::gradient)),
          optim::split_halves{reinterpret_cast<bfloat16*>(memory_.at(memory::value)),
                              reinterpret_cast<std::int16_t*>(memory_.at(memory::low))},
          {reinterpret_cast<float*>(memory_.at(memory::m)),
           reinterpret_cast<float*>(memory_.at(memory::v))},
          sizes_.elements);
    };
    return out;
  }

  /// Of `bytes`, a multiple of a granule for each rank.
  template <comm::communicator Comm>
  lane gather(Comm& comm, std::uint64_t bytes) {
    lane out{.queue = queue_id::gather, .amount = bytes};
    memory_.touches(out, memory::dev_data, access::read_write);
    out.work = [this, &comm, bytes](device::queue_ref q) {
      comm.all_gather(q, memory_.at(memory::dev_data), bytes / comm.size());
    };
    return out;
  }
  template <comm::communicator Comm>
  lane reduce(Comm& comm, std::uint64_t bytes) {
    lane out{.queue = queue_id::reduce, .amount = bytes};
    memory_.touches(out, memory::dev_data, access::read_write);
    memory_.touches(out, memory::dev_staging, access::write);
    out.work = [this, &comm, bytes](device::queue_ref q) {
      comm.reduce_scatter_ordered(q,
                                  memory_.at(memory::dev_data),
                                  memory_.at(memory::dev_staging),
                                  bytes / size_of(dtype::bf16),
                                  dtype::bf16);
    };
    return out;
  }

 private:
  using memory = probe_memory<Device>;

  void copy(lane& into, std::byte* to, std::byte const* from, std::uint64_t bytes) {
    into.work = [this, to, from, bytes](device::queue_ref q) { device_.copy(q, to, from, bytes); };
  }

  Device& device_;
  probe_sizes sizes_;
  memory memory_;
  device::workers crew_;
};

}  // namespace protrain::inline v0::profile::detail
