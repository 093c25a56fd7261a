// SPDX-License-Identifier: Apache-2.0
#pragma once
// A block's window on one pass: its parameters, its memory, its random numbers, its queue.

#include "protrain/block/error.hpp"
#include "protrain/block/frame.hpp"
#include "protrain/block/guards.hpp"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace protrain::inline v0::block {

/// What a forward is for. Backward belongs to `train`.
enum class mode : std::uint8_t {
  train,
  recompute,  ///< again, or a part of it, before backward, with the same bits; losses are ignored
  evaluate,   ///< no backward follows
};

/// An operator of a block: scratch taken while it lives is returned at its end, and its name is in
/// every message and report. Made by `scope::op`.
class operator_scope {
 public:
  operator_scope(operator_scope const&) = delete;
  operator_scope(operator_scope&&) = delete;
  operator_scope& operator=(operator_scope const&) = delete;
  operator_scope& operator=(operator_scope&&) = delete;
  ~operator_scope();

  /// As `scope::run`.
  template <class Kernels>
  void run(Kernels&& kernels) const;

 private:
  friend class scope;
  operator_scope(scope& owner, std::string_view name);

  scope& owner_;
  std::string_view name_;
  operator_scope* outer_;
  std::uint64_t mark_;        // scratch in use when it began
  std::uint64_t outer_peak_;  // high-water of the surrounding operator until then
  std::size_t guarded_;       // scratch tensors that were guarded when it began
};

/// Lives for one pass over one block. Nothing here allocates from the heap, apart from the first
/// growth of the owner's saved_table; every tensor is 256-byte aligned. What a block keeps beyond
/// the pass is only what it saves.
class scope {
 public:
  explicit scope(frame const& f);
  scope(scope const&) = delete;
  scope(scope&&) = delete;
  scope& operator=(scope const&) = delete;
  scope& operator=(scope&&) = delete;
  ~scope() = default;

  /// The working value of a parameter; read only.
  tensor_view value(parameter_ref p) const { return parameter(p).facts.at(at(f_.values, p.index)); }

  /// Where to put the gradient of this micro-batch and use: zero on entry, to be overwritten or
  /// added to. Absent if the parameter is frozen. In backward only.
  tensor_view gradient(parameter_ref p) const {
    PROTRAIN_EXPECT(f_.pass == pass::backward, "scope::gradient belongs to backward");
    entry_parameter const& about = parameter(p);
    return about.facts.at(about.trainable ? at(f_.gradients, p.index) : nullptr);
  }
  /// Whether `gradient` is wanted, also in a dry run.
  bool trainable(parameter_ref p) const { return parameter(p).trainable; }

  /// Memory that lasts until backward has run. In forward only; the same saves in the same order in
  /// a recompute. Contents are unspecified.
  tensor_view save(slot name, dtype type, extents const& shape);
  /// The same for a tensor that save levels may drop: `save("gelu", .., dropped_at{cheap_})`. In a
  /// forward it is like any other; before backward the block's rebuild has made it again.
  tensor_view save(slot name, dtype type, extents const& shape, dropped_at level);
  /// Keeps x itself, at no cost. The block must have said `reads_input`.
  tensor_view save(slot name, tensor_view const& x);
  /// What this micro-batch's forward, or its recompute, saved. In backward, and in a rebuild, which
  /// must leave it as it is: there for what was kept, or has been rebuilt before.
  tensor_view saved(slot name) const;

  /// In a rebuild only: whether a saved tensor was dropped and has to be made again.
  bool dropped(slot name) const { return dropped_row(name).dropped; }
  /// In a rebuild only: where to put a tensor that was dropped, with the bits it had. A rebuild
  /// makes all that was dropped.
  tensor_view rebuild(slot name);

  /// Memory until the innermost operator ends, or the pass. Contents are unspecified.
  tensor_view scratch(dtype type, extents const& shape);

  /// Starts an operator; `name` must outlive it.
  operator_scope op(std::string_view name) { return {*this, name}; }

  /// Calls `kernels()` or `kernels(queue)`; a dry run doesn't. Whatever touches a tensor belongs
  /// inside one: in a dry run there is no memory.
  template <class Kernels>
  void run(Kernels&& kernels) const {
    if (!f_.dry) {
      if constexpr (std::invocable<Kernels, device::queue_ref>) {
        std::forward<Kernels>(kernels)(f_.queue);
      } else {
        std::forward<Kernels>(kernels)();
      }
    }
  }

  tensor_view batch(batch_ref b) const {
    PROTRAIN_EXPECT(b.index < f_.entry->batch.size(), "no such batch tensor");
    entry_batch const& about = f_.entry->batch[b.index];
    return about.facts.at(at(f_.batch, about.index));
  }
  /// By the name it was declared with.
  tensor_view batch(std::string_view name) const;

  /// Adds to the loss of a sample of this micro-batch; ignored in a recompute. On the host only.
  void loss(std::uint64_t sample, float value) const {
    PROTRAIN_EXPECT(forwards(), "scope::loss belongs to forward");
    PROTRAIN_EXPECT(sample < f_.samples, "loss of a sample outside the micro-batch");
    if (tensor_view const all = losses(); all) {
      all.as<float>()[sample] += value;
    }
  }
  /// The losses of all samples, for kernels to add to; absent when they are to be left alone.
  tensor_view losses() const noexcept {
    bool const counted = f_.pass == pass::forward || f_.pass == pass::evaluate;
    return {counted && !f_.dry ? f_.losses : nullptr, dtype::f32, extents(f_.samples)};
  }
  /// What the head multiplies the gradient of the summed loss by, once; nothing else divides.
  float loss_scale() const noexcept { return f_.loss_scale; }

  block::mode mode() const noexcept {
    switch (f_.pass) {
      case pass::recompute:
      case pass::rebuild:
        return mode::recompute;
      case pass::evaluate:
        return mode::evaluate;
      default:
        return mode::train;
    }
  }

  /// The key of the k-th random operator of the block, for the first sample of the micro-batch: the
  /// i-th draws with `sample + i`, so that masks don't depend on how the batch is split. The same
  /// in every pass.
  random_key rng(std::uint32_t k) const {
    random_key key = f_.random;
    key.op = k;
    return key;
  }
  /// `rng(0)`, then `rng(1)`, ...; in forward only, the others say which one they mean.
  random_key rng() {
    PROTRAIN_EXPECT(forwards(), "outside forward, call scope::rng with its number");
    return rng(draws_++);
  }

  device::queue_ref queue() const noexcept { return f_.queue; }
  /// Samples of this micro-batch.
  std::uint64_t samples() const noexcept { return f_.samples; }
  /// Position within the repeat.
  std::uint32_t layer() const noexcept { return f_.entry->layer; }
  /// Position in execution order.
  block_id index() const noexcept { return block_id{f_.random.block}; }
  bool dry() const noexcept { return f_.dry; }

  /// Bytes taken so far, in granules, and the most scratch that was taken at once.
  std::uint64_t saved_used() const noexcept { return saved_used_; }
  std::uint64_t scratch_used() const noexcept { return scratch_used_; }
  std::uint64_t dropped_used() const noexcept { return dropped_used_; }
  std::uint64_t scratch_peak() const noexcept { return scratch_peak_; }
  /// After a rebuild: raises an error unless it made all that was dropped.
  void require_rebuilt() const;

 private:
  friend class operator_scope;

  entry_parameter const& parameter(parameter_ref p) const {
    PROTRAIN_EXPECT(p.index < f_.entry->parameters.size(), "no such parameter");
    return f_.entry->parameters[p.index];
  }
  /// Row `i` of an owner's list; absent in a dry run.
  void* at(std::span<void* const> list, std::size_t i) const {
    if (f_.dry) {
      return nullptr;
    }
    PROTRAIN_EXPECT(i < list.size(), "the frame has too few addresses");
    return list[i];
  }
  /// The block's own forward runs.
  bool forwards() const noexcept { return f_.pass != pass::backward && f_.pass != pass::rebuild; }
  tensor_view record(saved_tensor const& row, void* data);
  saved_tensor const& dropped_row(slot name) const;
  tensor_view place(saved_tensor const& row) const;
  std::uint64_t take(region const& from, std::uint64_t used, std::uint64_t bytes, char const* what);
  [[noreturn]] void fail(std::string_view subject,
                         std::string const& what,
                         std::uint64_t asked = 0,
                         std::uint64_t planned = 0) const;

  frame f_;
  operator_scope* innermost_ = nullptr;
  std::uint64_t saved_used_ = 0;
  std::uint64_t dropped_used_ = 0;
  std::uint64_t scratch_used_ = 0;
  std::uint64_t scratch_peak_ = 0;
  std::uint64_t operator_peak_ = 0;  // high-water since the innermost operator began
  std::uint32_t draws_ = 0;
};

}  // namespace protrain::inline v0::block

namespace protrain::inline v0 {
using block::operator_scope;
}  // namespace protrain::inline v0

#include "protrain/block/detail/scope.hpp"  // IWYU pragma: export
