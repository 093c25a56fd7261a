// SPDX-License-Identifier: Apache-2.0
#pragma once
// Carried memory between steps: where it is, loading, reading.

#include "protrain/chunk/layout.hpp"
#include "protrain/comm/communicator.hpp"
#include "protrain/device/device.hpp"
#include "protrain/runtime/detail/image.hpp"
#include "protrain/runtime/detail/setup.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/update/state_format.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace protrain::inline v0::runtime::detail {

/// Where a chunk lives between steps.
struct chunk_home {
  allocation_id value{};
  allocation_id state{};
};

/// Homes by chunk, and the host cells.
struct home_table {
  std::vector<chunk_home> chunks{};
  allocation_id host_scalars{};
  allocation_id host_batch{};
  allocation_id host_loss{};
  allocation_id report{};

  chunk_home const& operator[](std::size_t c) const { return chunks[c]; }
};

/// The host cells that the operands of one program show.
inline void add_cells(home_table& out, schedule::program const& p) {
  for (schedule::operand const& o : p.operands) {
    if (p.allocations[o.allocation.index()].where != space::host) {
      continue;
    }
    switch (o.what) {
      case schedule::role::scalars:
        out.host_scalars = o.allocation;
        break;
      case schedule::role::batch:
        out.host_batch = o.allocation;
        break;
      case schedule::role::loss:
        out.host_loss = o.allocation;
        break;
      case schedule::role::report:
        out.report = o.allocation;
        break;
      default:
        break;
    }
  }
}

/// Carried memory has the same ids in all segments; not every segment uses all of it.
inline home_table homes_of(std::vector<schedule::program> const& programs, chunk::layout const& l) {
  home_table out;
  out.chunks.assign(l.chunks.size(), {});
  schedule::program const& p = programs.front();
  for (std::size_t i = 0; i < p.allocations.size(); ++i) {
    schedule::allocation const& a = p.allocations[i];
    if (a.carried && a.chunk.valid() && a.what == category::parameters) {
      out.chunks[a.chunk.index()].value = make_id<allocation_id>(i);
    } else if (a.carried && a.chunk.valid() && a.what == category::optimizer) {
      out.chunks[a.chunk.index()].state = make_id<allocation_id>(i);
    }
  }
  for (schedule::program const& each : programs) {
    add_cells(out, each);
  }
  return out;
}

/// Reads and writes carried memory while nothing runs. Everything is borrowed from the engine.
template <device::device Device, comm::communicator Comm>
class storage {
 public:
  storage(Device& device, Comm& comm, plan_parts const& parts)
      : device_(device),
        comm_(comm),
        parts_(parts),
        bytes_(*update::bytes_of(parts.facts.job)),
        homes_(homes_of(parts.programs, parts.layout)) {}

  home_table const& homes() const noexcept { return homes_; }

  std::byte* cell(allocation_id id) const {
    return device_.base(space::host) + allocation(id).offset;
  }

  /// The losses of all ranks, after a step or an evaluation.
  float const* losses() const { return reinterpret_cast<float const*>(cell(homes_.host_loss)); }

  void clear(std::vector<schedule::allocation const*> const& carried) {
    for (schedule::allocation const* a : carried) {
      std::byte* const at = device_.base(a->where) + a->offset;
      queue_id const q = a->where == space::device ? queue_id::compute : queue_id::cpu;
      device::touched const range{a->where, a->offset, a->bytes, true, false};
      run_now(q, std::span(&range, 1), [&](device::queue_ref queue) {
        device_.zero(queue, at, a->bytes);
      });
    }
  }

  /// Every parameter, chunk by chunk. `load(parameter, values)`.
  template <class Load>
  void initialise(Load const& load) {
    std::vector<float> values;
    for (std::size_t c = 0; c < parts_.layout.chunks.size(); ++c) {
      chunk::chunk const& each = parts_.layout.chunks[c];
      if (each.elements == 0) {
        continue;
      }
      chunk_image image = image_of(c);
      for (std::size_t k = 0; k < each.tensors.size(); ++k) {
        values.assign(each.tensors[k].elements, 0.0F);
        load(parts_.facts.parameters[each.tensors[k].parameter.index()], std::span<float>(values));
        image.write(parts_.facts.job.state, k, values);
      }
      transfer(homes_[c], image, true);
    }
  }

  /// The fp32 values of one parameter that isn't empty, from the shares of all ranks.
  void read(parameter_id id, std::span<float> values) {
    if (values.empty()) {
      return;
    }
    chunk_id const owner = parts_.layout.where[id.index()].owner;
    chunk_image image = image_of(owner.index());
    transfer(homes_[owner.index()], image, false);
    std::vector<std::byte> shares(image.share() * comm_.size());
    image.copy_share(shares.data() + image.share() * comm_.rank());
    run_now(queue_id::cpu, {}, [&](device::queue_ref queue) {
      comm_.all_gather(queue, shares.data(), image.share());
    });
    chunk::chunk const& c = parts_.layout[owner];
    for (std::size_t k = 0; k < c.tensors.size(); ++k) {
      if (c.tensors[k].parameter == id) {
        image.read(parts_.facts.job.state, k, shares, values);
      }
    }
  }

 private:
  schedule::allocation const& allocation(allocation_id id) const {
    return parts_.programs.front().allocations[id.index()];
  }

  chunk_image image_of(std::size_t c) const {
    chunk_home const& home = homes_[c];
    bool const replicated = allocation(home.value).where == space::device;
    return {parts_.layout.chunks[c],
            replicated,
            home.state.valid(),
            bytes_,
            comm_.rank(),
            comm_.size()};
  }

  /// Runs `work` on a queue and waits.
  template <class F>
  void run_now(queue_id q, std::span<device::touched const> ranges, F work) {
    device::task const t{[](void* context, std::uint32_t, device::queue_ref queue) {
                           (*static_cast<F*>(context))(queue);
                         },
                         &work,
                         0};
    device_.submit(q, ranges, t);
    device_.synchronize();
    device_.reset_events();
  }

  /// Copies a chunk's value and state between its home and an image on the heap.
  void transfer(chunk_home const& home, chunk_image& image, bool to_home) {
    transfer_one(home.value, image.value(), to_home);
    transfer_one(home.state, image.state(), to_home);
  }
  void transfer_one(allocation_id home, std::span<std::byte> image, bool to_home) {
    if (!home.valid()) {
      return;
    }
    schedule::allocation const& a = allocation(home);
    std::byte* const at = device_.base(a.where) + a.offset;
    queue_id const to = a.where == space::device ? queue_id::h2d : queue_id::cpu;
    queue_id const from = a.where == space::device ? queue_id::d2h : queue_id::cpu;
    device::touched const range{a.where, a.offset, a.bytes, to_home, !to_home};
    run_now(to_home ? to : from, std::span(&range, 1), [&](device::queue_ref queue) {
      device_.copy(queue, to_home ? at : image.data(), to_home ? image.data() : at, image.size());
    });
  }

  Device& device_;
  Comm& comm_;
  plan_parts const& parts_;
  update::state_bytes bytes_;
  home_table homes_;
};

}  // namespace protrain::inline v0::runtime::detail
