// SPDX-License-Identifier: Apache-2.0
#pragma once
// Blocks without an engine: every tensor in heap memory of its own, everything kept, one thread.
// For trying a block out, for comparing with, and for tests.

#include "protrain/block/dry_pass.hpp"
#include "protrain/block/elements.hpp"
#include "protrain/block/guarded_pass.hpp"
#include "protrain/block/guards.hpp"
#include "protrain/block/stack.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace protrain::inline v0::block {

/// For tests of the block law: none of these may change a bit of any result, but that a gradient
/// which is added to starts at `gradient`.
struct standalone_options {
  std::optional<std::uint8_t> fill{};  ///< written before each pass to all that it must not read
  std::uint64_t shift = 0;             ///< granules by which every tensor's address moves
  float gradient = 0;                  ///< what gradients hold before backward
};

/// Which samples come next, and when.
struct micro_batch {
  std::uint64_t step = 0;          ///< attempted steps before this one
  std::uint64_t first_sample = 0;  ///< global
  std::uint64_t samples = 0;       ///< 0 means the job's
  float loss_scale = 1;
};

namespace detail {

/// Heap memory at a granule boundary plus `shift` granules, between two granules that nobody
/// writes.
class heap_tensor {
 public:
  heap_tensor() = default;
  heap_tensor(std::uint64_t bytes, std::uint64_t shift)
      : bytes_(bytes),
        shift_((shift + 1) * address_granule),
        data_(static_cast<std::byte*>(
            ::operator new(shift_ + bytes + address_granule, std::align_val_t{address_granule}))) {
    std::memset(data() - address_granule, canary, address_granule);
    std::memset(data() + bytes_, canary, address_granule);
    fill(0);
  }
  /// Whether both guards are as they were.
  bool intact() const noexcept {
    auto const untouched = [](std::byte const* at) {
      return std::all_of(
          at, at + address_granule, [](std::byte b) { return b == std::byte{canary}; });
    };
    return !data_ || (untouched(data() - address_granule) && untouched(data() + bytes_));
  }
  std::byte* data() const noexcept { return data_.get() + shift_; }
  region all() const noexcept { return {data(), bytes_}; }
  void fill(std::uint8_t value) const noexcept { std::memset(data(), value, bytes_); }
  /// Every element of `t` in this memory becomes `value`.
  void fill(tensor_facts const& t, float value) const {
    if (value == 0) {
      fill(0);
      return;
    }
    for (std::uint64_t i = 0; i < t.shape.elements(); ++i) {
      store_element(t.at(data()), i, static_cast<double>(value));
    }
  }

 private:
  static constexpr std::uint8_t canary = 0xC3;
  struct release {
    void operator()(std::byte* p) const noexcept {
      ::operator delete(p, std::align_val_t{address_granule});
    }
  };
  std::uint64_t bytes_ = 0;
  std::uint64_t shift_ = 0;
  std::unique_ptr<std::byte, release> data_{};
};

/// What one block owns.
struct standalone_block {
  memory_need need{};
  memory_need used{};
  heap_tensor output{};
  heap_tensor output_gradient{};
  heap_tensor saved{};
  heap_tensor dropped{};
  saved_table slots{};
  std::uint32_t level = 0;  // of the last forward
  std::vector<heap_tensor> contributions{};
  std::vector<void*> values{};     // by position in the entry's parameters
  std::vector<void*> gradients{};  // likewise; null where frozen
};

}  // namespace detail

/// Runs the blocks of a table, which must outlive it. After construction nothing is allocated but
/// a saved_table's first rows.
class standalone {
 public:
  standalone(table const& t, model::job const& job, standalone_options const& options = {})
      : table_(t), job_(job), options_(options), guards_(job), losses_(job.micro_batch, 0.0F) {
    for (model::parameter const& p : t.parameters) {
      values_.push_back(make(facts_of(p).bytes()));
    }
    for (batch_tensor const& b : t.batch) {
      batch_.push_back(make(b.facts.bytes()));
      batch_addresses_.push_back(batch_.back().data());
    }
    std::uint64_t scratch = 0;
    std::uint64_t output = 0;
    for (std::size_t b = 0; b < t.blocks.size(); ++b) {
      blocks_.push_back(make_state(make_id<block_id>(b)));
      memory_need const& need = blocks_.back().need;
      scratch = std::max({scratch, need.scratch_forward, need.scratch_backward});
      for (level_need const& level : need.levels) {
        scratch = std::max(scratch, level.scratch);
      }
      output = std::max(output, model::guarded(job, t.blocks[b].output.bytes()));
    }
    scratch_ = make(scratch);
    spare_ = make(output);
    begin({});
  }
  standalone(standalone const&) = delete;
  standalone(standalone&&) = delete;
  standalone& operator=(standalone const&) = delete;
  standalone& operator=(standalone&&) = delete;
  ~standalone() = default;

  /// To be written by the caller, between passes.
  tensor_view value(parameter_id p) const {
    return facts_of(table_.parameters.at(p.index())).at(values_[p.index()].data());
  }
  tensor_view batch(std::string_view name) const {
    auto const row = std::ranges::find(table_.batch, name, &batch_tensor::name);
    PROTRAIN_EXPECT(row != table_.batch.end(), "no batch tensor of that name");
    return row->facts.at(batch_addresses_[static_cast<std::size_t>(row - table_.batch.begin())]);
  }
  /// y of block `b`.
  tensor_view output(block_id b) const { return entry(b).output.at(state(b).output.data()); }
  /// dy of block `b`: what the next block's backward wrote as its dx.
  tensor_view output_gradient(block_id b) const {
    return entry(b).output.at(state(b).output_gradient.data());
  }
  /// What the last backward of `b` put into `scope::gradient(p)`; absent if frozen.
  tensor_view contribution(block_id b, parameter_ref p) const {
    return entry(b).parameters.at(p.index).facts.at(state(b).gradients[p.index]);
  }
  /// All that the last forward or recompute of `b` saved, in granules.
  std::span<std::byte const> saved(block_id b) const {
    return {state(b).saved.data(), static_cast<std::size_t>(state(b).need.saved)};
  }
  std::span<float const> losses() const noexcept {
    return std::span(losses_).first(static_cast<std::size_t>(now_.samples));
  }
  /// A saved tensor of `b`; where it was dropped, what the rebuild has put there.
  tensor_view saved(block_id b, saved_tensor const& row) const {
    if (row.input) {
      return backward_input(b);
    }
    auto const& region = row.dropped ? state(b).dropped : state(b).saved;
    return {region.data() + row.offset, row.type, row.shape};
  }
  /// Its rows.
  std::span<saved_tensor const> saved_rows(block_id b) const { return state(b).slots.rows(); }
  /// Whether no block wrote before or behind a tensor; `where` says of which kind it was if one did.
  bool intact(std::string* where = nullptr) const {
    auto const whole = [&](auto const& tensors, char const* what) {
      bool const ok = std::ranges::all_of(tensors, &detail::heap_tensor::intact);
      if (!ok && where != nullptr) {
        *where = what;
      }
      return ok;
    };
    bool ok = whole(values_, "a parameter") && whole(batch_, "a batch tensor") &&
              whole(std::span(&scratch_, 1), "the scratch region");
    for (detail::standalone_block const& b : blocks_) {
      ok = ok && whole(b.contributions, "a gradient") && whole(std::span(&b.output, 1), "y") &&
           whole(std::span(&b.output_gradient, 1), "dx") &&
           whole(std::span(&b.saved, 1), "the saved region") &&
           whole(std::span(&b.dropped, 1), "the region of what a level drops");
    }
    return ok;
  }
  /// What a dry pass says that `b` needs.
  memory_need const& need(block_id b) const { return state(b).need; }
  /// What `b` has really taken so far, as its scopes counted it; operators are not listed.
  memory_need const& used(block_id b) const { return state(b).used; }

  /// Starts a micro-batch; losses become zero.
  void begin(micro_batch const& m) {
    PROTRAIN_EXPECT(m.samples <= job_.micro_batch, "more samples than a micro-batch holds");
    now_ = m;
    now_.samples = m.samples == 0 ? job_.micro_batch : m.samples;
    std::ranges::fill(losses_, 0.0F);
  }

  /// What the next passes find where they must not read.
  void set(std::optional<std::uint8_t> fill, float gradient) {
    options_.fill = fill;
    options_.gradient = gradient;
  }

  /// Every block's forward, in order.
  void forward(pass p = pass::forward) {
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      forward(make_id<block_id>(b), p);
    }
  }
  /// One block's forward. As `recompute` it saves again, and its output goes nowhere. At a save
  /// level `rebuild` is due before backward.
  void forward(block_id b, pass p, std::uint32_t level = 0) {
    PROTRAIN_EXPECT(p != pass::backward && p != pass::rebuild, "other passes have other functions");
    PROTRAIN_EXPECT(level <= entry(b).levels.size(), "the block has no such level");
    state(b).level = level;
    tensor_view const y = p == pass::recompute ? entry(b).output.at(spare_.data()) : output(b);
    poison(state(b).saved);
    poison(state(b).dropped);
    poison(scratch_);
    poison(p == pass::recompute ? spare_ : state(b).output);
    frame const f = make_frame(b, p);
    guarded_pass const guard(f, y);
    scope s(f);
    entry(b).forward(entry(b).object, s, input(b), y);
    guard.finish();
    memory_need& used = state(b).used;
    used.saved = std::max(used.saved, s.saved_used());
    used.slots = std::max<std::uint64_t>(used.slots, state(b).slots.rows().size());
    used.scratch_forward = std::max(used.scratch_forward, s.scratch_peak());
  }

  /// Drops what the level of the last forward drops, and makes it again.
  void rebuild(block_id b) {
    PROTRAIN_EXPECT(state(b).level > 0, "at level 0 nothing is dropped");
    std::uint32_t const level = state(b).level;
    poison(state(b).dropped);
    poison(scratch_);
    frame const f = make_frame(b, pass::rebuild);
    guarded_pass const guard(f, {});
    scope s(f);
    run_rebuild(entry(b), s, rebuild_input(b));
    guard.finish();
    std::uint64_t& peak = state(b).used.levels[level - 1].scratch;
    peak = std::max(peak, s.scratch_peak());
  }

  /// Every block's backward, from the last one.
  void backward() {
    for (std::size_t b = blocks_.size(); b > 0; --b) {
      backward(make_id<block_id>(b - 1));
    }
  }
  /// One block's backward, from zero contributions.
  void backward(block_id b) {
    for (std::size_t i = 0; i < state(b).contributions.size(); ++i) {
      entry_parameter const& p = entry(b).parameters[i];
      if (p.trainable) {
        state(b).contributions[i].fill(p.facts, options_.gradient);
      }
    }
    tensor_view dx = entry(b).input.at(nullptr);
    if (b.index() > 0) {
      poison(state(before(b)).output_gradient);
      dx = output_gradient(before(b));
    }
    poison(scratch_);
    frame const f = make_frame(b, pass::backward);
    guarded_pass const guard(f, dx);
    scope s(f);
    entry(b).backward(entry(b).object, s, backward_input(b), output_gradient(b), dx);
    guard.finish();
    std::uint64_t& peak = state(b).used.scratch_backward;
    peak = std::max(peak, s.scratch_peak());
  }

 private:
  detail::heap_tensor make(std::uint64_t bytes) const { return {bytes, options_.shift}; }
  void poison(detail::heap_tensor const& t) const noexcept {
    if (options_.fill) {
      t.fill(*options_.fill);
    }
  }
  block_entry const& entry(block_id b) const { return table_.blocks.at(b.index()); }
  detail::standalone_block& state(block_id b) { return blocks_.at(b.index()); }
  detail::standalone_block const& state(block_id b) const { return blocks_.at(b.index()); }
  static block_id before(block_id b) { return make_id<block_id>(b.index() - 1); }

  tensor_view input(block_id b) const {
    return entry(b).input.at(b.index() == 0 ? nullptr : state(before(b)).output.data());
  }
  tensor_view backward_input(block_id b) const {
    return entry(b).reads_input ? input(b) : entry(b).input.at(nullptr);
  }

  tensor_view rebuild_input(block_id b) const {
    bool const reads = entry(b).levels[state(b).level - 1].reads_input;
    return reads ? input(b) : entry(b).input.at(nullptr);
  }

  detail::standalone_block make_state(block_id b) const {
    block_entry const& e = entry(b);
    detail::standalone_block out{};
    out.need = dry_pass(e, job_, b);
    out.output = make(model::guarded(job_, e.output.bytes()));
    out.output_gradient = make(model::guarded(job_, e.output.bytes()));
    out.saved = make(out.need.saved);
    std::uint64_t dropped = 0;
    for (level_need const& level : out.need.levels) {
      dropped = std::max(dropped, level.dropped);
    }
    out.dropped = make(dropped);
    out.used.levels.resize(out.need.levels.size());
    out.slots.reserve(out.need.slots);
    for (entry_parameter const& p : e.parameters) {
      out.contributions.push_back(make(p.trainable ? model::guarded(job_, p.facts.bytes()) : 0));
      out.gradients.push_back(p.trainable ? out.contributions.back().data() : nullptr);
      out.values.push_back(values_[p.id.index()].data());
    }
    return out;
  }

  frame make_frame(block_id b, pass p) {
    detail::standalone_block& own = state(b);
    frame f = block::make_frame(entry(b), job_, b, p);
    f.x = p == pass::backward ? backward_input(b) : input(b);
    f.x = p == pass::rebuild ? rebuild_input(b) : f.x;
    f.values = own.values;
    f.gradients = own.gradients;
    f.batch = batch_addresses_;
    f.level = own.level;
    f.saved = own.saved.all();
    f.dropped = own.dropped.all();
    f.scratch = scratch_.all();
    f.slots = &own.slots;
    f.guards = guards_.on() ? &guards_ : nullptr;
    f.losses = losses_.data();
    f.loss_scale = now_.loss_scale;
    f.samples = now_.samples;
    f.random.step = now_.step;
    f.random.sample = now_.first_sample;
    return f;
  }

  table const& table_;
  model::job job_;
  standalone_options options_;
  guards guards_;
  micro_batch now_{};
  std::vector<float> losses_;
  std::vector<detail::heap_tensor> values_{};
  std::vector<detail::heap_tensor> batch_{};
  std::vector<void*> batch_addresses_{};
  std::vector<detail::standalone_block> blocks_{};
  detail::heap_tensor scratch_{};
  detail::heap_tensor spare_{};
};

}  // namespace protrain::inline v0::block

namespace protrain::inline v0 {
using block::standalone;
}  // namespace protrain::inline v0
