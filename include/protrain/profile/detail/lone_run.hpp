// SPDX-License-Identifier: Apache-2.0
#pragma once
// One block alone on a device: its parameters, its boundary, its passes, and nothing of any other.

#include "protrain/block/dry_pass.hpp"
#include "protrain/block/entry.hpp"
#include "protrain/block/error.hpp"
#include "protrain/block/saved.hpp"
#include "protrain/block/scope.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/device/device.hpp"
#include "protrain/model/job.hpp"
#include "protrain/profile/detail/pass_times.hpp"
#include "protrain/profile/detail/sample_data.hpp"
#include "protrain/profile/detail/work.hpp"
#include "protrain/profile/error.hpp"
#include "protrain/profile/hooks.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace protrain::inline v0::profile::detail {

/// Where a block's tensors lie: those of both passes first, then either those of forward or, at the
/// same place, those of backward.
struct lone_layout {
  std::vector<placed> values{};  ///< by position in the entry's parameters
  std::vector<placed> batch{};   ///< by position in the table's batch; empty where it isn't read
  placed losses{};
  placed x{};
  placed saved{};
  placed y{};
  placed scratch_forward{};
  placed dy{};
  placed dx{};
  std::vector<placed> gradients{};  ///< as values; empty where frozen
  placed scratch_backward{};
  std::vector<placed> scratch_rebuild{};  ///< by level; the same place as forward's and backward's
  std::uint64_t end = 0;
};

inline lone_layout layout_of(block::table const& t,
                             block::block_entry const& e,
                             block::memory_need const& need,
                             model::job const& job) {
  lone_layout out{.batch = std::vector<placed>(t.batch.size())};
  placer both;
  for (block::entry_parameter const& p : e.parameters) {
    out.values.push_back(both.take(p.facts.bytes()));
  }
  for (block::entry_batch const& b : e.batch) {
    if (out.batch[b.index].bytes == 0) {
      out.batch[b.index] = both.take(b.facts.bytes());
    }
  }
  out.losses = both.take(checked_mul(job.micro_batch, sizeof(float)));
  out.x = both.take(e.input.bytes());
  out.saved = both.take(need.saved);
  placer forward(both.end());
  out.y = forward.take(e.output.bytes());
  out.scratch_forward = forward.take(need.scratch_forward);
  placer backward(both.end());
  out.dy = backward.take(e.output.bytes());
  out.dx = backward.take(e.input.bytes());
  for (block::entry_parameter const& p : e.parameters) {
    out.gradients.push_back(backward.take(p.trainable ? p.facts.bytes() : 0));
  }
  out.scratch_backward = backward.take(need.scratch_backward);
  out.end = std::max(forward.end(), backward.end());
  for (block::level_need const& level : need.levels) {
    placer rebuild(both.end());
    out.scratch_rebuild.push_back(rebuild.take(level.scratch));
    out.end = std::max(out.end, rebuild.end());
  }
  return out;
}

/// A block that is measured for all of its shape.
struct lone_block {
  block_id id{};
  block::memory_need need{};
  lone_layout layout{};
};

inline std::vector<std::string> operators_of(block::memory_need const& need) {
  std::vector<std::string> out;
  out.reserve(need.operators.size());
  for (block::operator_need const& o : need.operators) {
    out.push_back(o.name);
  }
  return out;
}

/// Holds the block's memory and its values while it lives. Everything is borrowed.
template <device::device Device>
class lone_run {
 public:
  lone_run(Device& device,
           block::table const& t,
           model::job const& job,
           lone_block const& b,
           sample_data& data)
      : device_(device),
        table_(t),
        job_(job),
        at_(b.layout),
        need_(b.need),
        id_(b.id),
        data_(data),
        recorder_(stopwatch<Device>(device), operators_of(b.need)),
        held_(device) {
    slots_.reserve(b.need.slots);
    for (placed const& p : at_.batch) {
      batch_.push_back(address(p));
    }
    for (std::size_t i = 0; i < at_.values.size(); ++i) {
      values_.push_back(address(at_.values[i]));
      gradients_.push_back(address(at_.gradients[i]));
    }
    take();
    load();
  }

  /// Saves what the next `backward`, or at a level the next `rebuild` reads.
  pass_times forward(std::uint32_t level = 0) {
    level_ = level;
    leases<Device> held(device_);
    held.take(space::device, at_.y, category::boundaries);
    held.take(space::device, at_.scratch_forward, category::scratch);
    device_.settle();
    clear({at_.losses});
    auto touched = constants();
    touch(touched, space::device, at_.x, access::read);
    touch(touched, space::device, at_.losses, access::read_write);
    touch(touched, space::device, at_.y, access::write);
    touch(touched, space::device, at_.saved, access::write);
    touch(touched, space::device, at_.scratch_forward, access::write);
    return run(block::pass::forward, at_.scratch_forward, touched);
  }

  /// Makes what the level of the last `forward` drops.
  pass_times rebuild() {
    placed const& scratch = at_.scratch_rebuild[level_ - 1];
    leases<Device> held(device_);
    held.take(space::device, scratch, category::scratch);
    device_.settle();
    auto touched = constants();
    if (entry().levels[level_ - 1].reads_input) {
      touch(touched, space::device, at_.x, access::read);
    }
    touch(touched, space::device, kept(), access::read);
    touch(touched, space::device, dropped(), access::write);
    touch(touched, space::device, scratch, access::write);
    return run(block::pass::rebuild, scratch, touched);
  }

  /// After a `forward` at no level.
  pass_times backward() {
    leases<Device> held(device_);
    held.take(space::device, at_.dy, category::boundaries);
    held.take(space::device, at_.dx, category::boundaries);
    for (placed const& g : at_.gradients) {
      held.take(space::device, g, category::gradients);
    }
    held.take(space::device, at_.scratch_backward, category::scratch);
    device_.settle();
    fill_all({data_.boundary(address(at_.dy), entry().output)}, {at_.dy});
    clear(at_.gradients);
    auto touched = constants();
    if (entry().reads_input) {
      touch(touched, space::device, at_.x, access::read);
    }
    touch(touched, space::device, at_.saved, access::read);
    touch(touched, space::device, at_.dy, access::read);
    touch(touched, space::device, at_.dx, access::write);
    for (placed const& g : at_.gradients) {
      touch(touched, space::device, g, access::read_write);
    }
    touch(touched, space::device, at_.scratch_backward, access::write);
    return run(block::pass::backward, at_.scratch_backward, touched);
  }

 private:
  block::block_entry const& entry() const { return table_.blocks[id_.index()]; }
  std::byte* address(placed const& p) const {
    return p.bytes == 0 ? nullptr : device_.base(space::device) + p.offset;
  }

  void take() {
    for (placed const& p : at_.values) {
      held_.take(space::device, p, category::parameters);
    }
    for (placed const& p : at_.batch) {
      held_.take(space::device, p, category::batch);
    }
    held_.take(space::device, at_.losses, category::batch);
    held_.take(space::device, at_.x, category::boundaries);
    held_.take(space::device, at_.saved, category::activations);
    device_.settle();
  }

  void load() {
    std::vector<filling> all;
    std::vector<placed> places;
    auto const add = [&](filling const& f, placed const& at) {
      all.push_back(f);
      places.push_back(at);
    };
    for (std::size_t i = 0; i < at_.values.size(); ++i) {
      add(data_.parameter(address(at_.values[i]), entry().parameters[i].facts), at_.values[i]);
    }
    for (std::size_t i = 0; i < at_.batch.size(); ++i) {
      if (at_.batch[i].bytes > 0) {
        add(data_.batch(address(at_.batch[i]), table_.batch[i]), at_.batch[i]);
      }
    }
    add(data_.boundary(address(at_.x), entry().input), at_.x);
    fill_all(all, places);
  }

  void fill_all(std::vector<filling> const& all, std::vector<placed> const& places) {
    auto work = [&](device::queue_ref q) {
      for (filling const& f : all) {
        fill(device_, q, f);
      }
    };
    run_on(queue_id::h2d, places, work);
  }

  void clear(std::vector<placed> const& places) {
    auto work = [&](device::queue_ref q) {
      for (placed const& p : places) {
        if (p.bytes > 0) {
          device_.zero(q, address(p), p.bytes);
        }
      }
    };
    run_on(queue_id::compute, places, work);
  }

  template <class Work>
  void run_on(queue_id q, std::vector<placed> const& written, Work& work) {
    std::vector<device::touched> touched;
    for (placed const& p : written) {
      touch(touched, space::device, p, access::write);
    }
    run_now(device_, q, touched, work);
  }

  std::vector<device::touched> constants() const {
    std::vector<device::touched> out;
    for (auto const* const list : {&at_.values, &at_.batch}) {
      for (placed const& p : *list) {
        touch(out, space::device, p, access::read);
      }
    }
    return out;
  }

  /// The saved region has room for what a level keeps, and behind it for what it drops.
  placed kept() const {
    return level_ == 0 ? at_.saved : placed{at_.saved.offset, need_.levels[level_ - 1].saved};
  }
  placed dropped() const {
    return level_ == 0 ? placed{}
                       : placed{at_.saved.offset + kept().bytes, need_.levels[level_ - 1].dropped};
  }
  bool reads_input(block::pass p) const {
    return p == block::pass::rebuild ? entry().levels[level_ - 1].reads_input
                                     : p != block::pass::backward || entry().reads_input;
  }

  block::frame frame_of(block::pass p, placed const& scratch, block::observer const& watch) {
    block::frame f = block::make_frame(entry(), job_, id_, p);
    f.x = entry().input.at(reads_input(p) ? address(at_.x) : nullptr);
    f.values = values_;
    f.gradients = gradients_;
    f.batch = batch_;
    f.level = level_;
    f.saved = {address(kept()), kept().bytes};
    f.dropped = {address(dropped()), dropped().bytes};
    f.scratch = {address(scratch), scratch.bytes};
    f.slots = &slots_;
    if (p == block::pass::forward) {
      f.losses = reinterpret_cast<float*>(address(at_.losses));
    }
    f.loss_scale = job_.loss_scale / static_cast<float>(std::max<std::uint64_t>(
                                         1, checked_mul(job_.micro_batch, job_.sequence)));
    f.watch = &watch;
    return f;
  }

  pass_times run(block::pass p,
                 placed const& scratch,
                 std::vector<device::touched> const& touched) {
    block::observer const watch = recorder_.observe();
    block::frame f = frame_of(p, scratch, watch);
    bool failed = false;
    auto work = [&](device::queue_ref q) {
      float_environment const environment;
      f.queue = q;
      recorder_.start(q);
      try {
        call(f);
      } catch (...) {
        failed = true;
        throw;
      }
      recorder_.stop(q);
    };
    try {
      run_now(device_, queue_id::compute, touched, work);
    } catch (block::block_error const&) {
      throw;  // names block and operator already
    } catch (std::exception const& e) {
      if (failed) {
        blame(p, e.what());
      }
      throw;
    } catch (...) {
      if (failed) {
        blame(p, "threw what is no std::exception");
      }
      throw;
    }
    return recorder_.times();
  }

  void call(block::frame const& f) const {
    block::block_entry const& e = entry();
    block::scope s(f);
    if (f.pass == block::pass::backward) {
      e.backward(e.object, s, f.x, e.output.at(address(at_.dy)), e.input.at(address(at_.dx)));
    } else if (f.pass == block::pass::rebuild) {
      block::run_rebuild(e, s, f.x);
    } else {
      e.forward(e.object, s, f.x, e.output.at(address(at_.y)));
    }
  }

  /// The current exception becomes the nested one.
  [[noreturn]] void blame(block::pass p, char const* what) const {
    char const* const made = p == block::pass::rebuild ? "rebuild" : "forward";
    char const* const name = p == block::pass::backward ? "backward" : made;
    std::throw_with_nested(profile_error(entry().name, recorder_.failed_in(), name, what));
  }

  Device& device_;
  block::table const& table_;
  model::job const& job_;
  lone_layout const& at_;
  block::memory_need const& need_;
  block_id id_;
  sample_data& data_;
  recorder<Device> recorder_;
  std::uint32_t level_ = 0;  // of the last forward
  leases<Device> held_;
  block::saved_table slots_{};
  std::vector<void*> values_{};
  std::vector<void*> gradients_{};
  std::vector<void*> batch_{};
};

}  // namespace protrain::inline v0::profile::detail
