// SPDX-License-Identifier: Apache-2.0
#pragma once
// Blocks with exactly the parameters, boundaries, saves and scratch that a trace tells of, whose
// outputs are hashes of every byte they may depend on: one stale, wrong or missing byte anywhere
// changes the bits of everything that follows.

#include "protrain/block/scope.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/philox.hpp"
#include "protrain/model/job.hpp"
#include "protrain/trace/trace.hpp"
#include "test/support/saved_pieces.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace protrain::test {

/// Order-sensitive digest of words; a bijection in each word.
class digest {
 public:
  void word(std::uint64_t w) noexcept {
    state_ = (std::rotl(state_, 29) ^ w) * 0x9E3779B97F4A7C15ULL;
    state_ ^= state_ >> 32U;
  }
  /// Absent tensors are forbidden: whoever calls this is about to read them.
  void tensor(tensor_view const& t) {
    std::uint64_t const n = t.bytes();
    PROTRAIN_EXPECT(n == 0 || t.data != nullptr, "a tensor that must be there is absent");
    word(n);
    std::uint64_t at = 0;
    for (; at + 8 <= n; at += 8) {
      std::uint64_t w = 0;
      std::memcpy(&w, t.raw() + at, 8);
      word(w);
    }
    for (; at < n; ++at) {
      word(std::to_integer<std::uint64_t>(t.raw()[at]));
    }
  }
  void key(random_key const& k) noexcept {
    random_stream const stream = make_stream(k);
    word(stream.key);
    word(stream.lane);
  }
  /// The i-th word of what follows from everything so far.
  std::uint64_t draw(std::uint64_t i) const noexcept {
    std::uint64_t z = state_ + (i + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  }

 private:
  std::uint64_t state_ = 0x243F6A8885A308D3ULL;
};

namespace detail {

/// Writes every byte of `t`; `lane` separates tensors of one digest.
inline void fill_raw(tensor_view const& t, digest const& from, std::uint64_t lane) {
  std::uint64_t const n = t.bytes();
  for (std::uint64_t at = 0; at < n; at += 8) {
    std::uint64_t const w = from.draw((lane << 40U) + at);
    std::memcpy(t.raw() + at, &w, std::min<std::uint64_t>(8, n - at));
  }
}

/// k 2^-e with |k| < 128 and e in [4, 20]: exact in every gradient dtype, yet sums round in fp32,
/// so that their order counts.
inline float small_float(std::uint64_t draw) noexcept {
  auto const k = static_cast<std::int32_t>(draw & 0xFFU) - 128;
  return std::ldexp(static_cast<float>(k == -128 ? 1 : k),
                    -4 - static_cast<int>((draw >> 8U) % 17));
}

/// Of a multiple of 2^-24 below 2^16 that has at most 11 significant bits.
inline std::uint16_t exact_half(float x) noexcept {
  std::uint32_t const sign = std::signbit(x) ? 0x8000U : 0U;
  float const a = std::fabs(x);
  if (a < 0x1p-14F) {
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(a * 0x1p24F));
  }
  auto const bits = std::bit_cast<std::uint32_t>(a);
  return static_cast<std::uint16_t>(sign | ((bits - (112U << 23U)) >> 13U));
}

/// Finite gradients. `add`: onto what is there, which is zero by contract.
inline void fill_gradient(tensor_view const& t, digest const& from, std::uint64_t lane, bool add) {
  for (std::uint64_t i = 0; i < t.elements(); ++i) {
    float const g = small_float(from.draw((lane << 40U) + i));
    switch (t.type) {
      case dtype::f32:
        t.as<float>()[i] = add ? t.as<float>()[i] + g : g;
        break;
      case dtype::bf16: {
        bfloat16& to = t.as<bfloat16>()[i];
        to = to_bfloat16(add ? to_float(to) + g : g);
        break;
      }
      case dtype::f16: {
        std::uint16_t const half = exact_half(g);
        std::memcpy(t.raw() + 2 * i, &half, 2);
        break;
      }
      default:
        PROTRAIN_EXPECT(false, "gradients are fp32, bf16 or fp16");
    }
  }
}

}  // namespace detail

/// A block of a trace. Its description is what the trace says of block `b`; times are ignored.
class synthetic_block {
 public:
  synthetic_block(trace::trace const& t, block_id b)
      : facts_(t.shape(b)),
        batch_(t.batch.count()),
        first_(b.index() == 0),
        last_(b.index() + 1 == t.blocks.size()) {
    for (model::parameter const& p : t.parameters) {
      if (std::ranges::find(p.uses, b) != p.uses.end()) {
        parameters_.push_back(p);
        tied_.push_back(p.uses.front() != b);
      }
    }
  }

  void describe(block_builder& b) const {
    b.name(facts_.name.view());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      model::parameter const& p = parameters_[i];
      b.parameter(tied_[i] ? "use of " + std::string(p.name.view()) : std::string(p.name.view()),
                  block::facts_of(p).shape,
                  {.trainable = p.trainable,
                   .decay = p.decay,
                   .tied = tied_[i] ? p.name.view() : std::string_view{},
                   .type = p.type});
    }
    if (batch_ > 0) {
      b.batch("batch", dtype::u8, {batch_});
    }
    if (!first_) {
      b.input({facts_.input.count()}, dtype::u8);
    }
    if (!last_) {
      b.output({facts_.output.count()}, dtype::u8);
    }
    b.reads_input(facts_.reads_input);
    for (trace::save_level const& level : facts_.levels) {
      b.level(level.name.view(), {.reads_input = level.reads_input});
    }
  }

  void forward(scope& s, tensor_view x, tensor_view y) const {
    digest seen;
    s.run([&] {
      seen.tensor(x);
      read_constants(s, seen);
      seen.key(s.rng(0));
    });
    use_scratch(s, facts_.scratch_forward.count(), seen);
    tensor_view before{};
    for (std::uint32_t i = 0; i < pieces(facts_.saved.count()); ++i) {
      tensor_view const t = save_piece(s, i);
      s.run([&] {
        detail::fill_raw(t, facts_.levels.empty() ? seen : source_of(s, x, i, before), 1 + i);
      });
      before = t;
    }
    if (facts_.reads_input) {
      s.save("x", x);
    }
    s.run([&] {
      detail::fill_raw(y, seen, 0);
      for (std::uint64_t sample = 0; sample < s.samples(); ++sample) {
        s.loss(sample, to_uniform(static_cast<std::uint32_t>(seen.draw(sample + 1) >> 32U)));
      }
    });
  }

  /// Level k has dropped k pieces.
  void rebuild(scope& s, tensor_view x) const {
    std::uint32_t level = 0;
    for (std::uint32_t i = 0; i < pieces(facts_.saved.count()); ++i) {
      level += s.dropped(block::slot("piece")[i]) ? 1U : 0U;
    }
    digest spoiled;
    PROTRAIN_EXPECT(level > 0 && level <= facts_.levels.size(), "a rebuild where all is kept");
    use_scratch(s, facts_.levels[level - 1].scratch.count(), spoiled);
    tensor_view before{};
    for (std::uint32_t i = 0; i < pieces(facts_.saved.count()); ++i) {
      block::slot const name = block::slot("piece")[i];
      bool const dropped = s.dropped(name);
      tensor_view const t = dropped ? s.rebuild(name) : s.saved(name);
      if (dropped) {
        s.run([&] { detail::fill_raw(t, source_of(s, x, i, before), 1 + i); });
      }
      before = t;
    }
  }

  void backward(scope& s, tensor_view x, tensor_view dy, tensor_view dx) const {
    digest seen;
    for (std::uint32_t i = 0; piece(facts_.saved.count(), i) > 0; ++i) {
      tensor_view const t = s.saved(block::slot("piece")[i]);
      s.run([&] { seen.tensor(t); });
    }
    if (facts_.reads_input) {
      tensor_view const alias = s.saved("x");
      PROTRAIN_EXPECT(alias.data == x.data, "a saved x is x");
      s.run([&] { seen.tensor(alias); });
    }
    s.run([&] {
      seen.tensor(dy);
      read_constants(s, seen);
      seen.key(s.rng(0));
      seen.word(std::bit_cast<std::uint32_t>(s.loss_scale()));
    });
    use_scratch(s, facts_.scratch_backward.count(), seen);
    s.run([&] { detail::fill_raw(dx, seen, 0); });
    for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
      tensor_view const g = s.gradient({i});
      if (s.trainable({i})) {
        s.run([&] { detail::fill_gradient(g, seen, 1 + i, i % 2 == 1); });
      }
    }
  }

 private:
  tensor_view save_piece(scope& s, std::uint32_t i) const {
    std::uint64_t const total = facts_.saved.count();
    std::uint32_t const level =
        dropped_from(total, i, static_cast<std::uint32_t>(facts_.levels.size()));
    block::slot const name = block::slot("piece")[i];
    return level == 0 ? s.save(name, dtype::u8, {piece(total, i)})
                      : s.save(name,
                               dtype::u8,
                               {piece(total, i)},
                               block::dropped_at{block::level_ref{level}});
  }

  /// What piece `i` of a block with levels is made from: the first from x, each other from the one
  /// before it, and from x where the rebuild may read it.
  digest source_of(scope& s, tensor_view x, std::uint32_t i, tensor_view before) const {
    digest out;
    if (i == 0 || facts_.levels.front().reads_input) {
      out.tensor(x);
    }
    if (i > 0) {
      out.tensor(before);
    }
    read_constants(s, out);
    out.key(s.rng(0));
    return out;
  }

  void read_constants(scope& s, digest& seen) const {
    for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
      seen.tensor(s.value({i}));
    }
    if (batch_ > 0) {
      seen.tensor(s.batch("batch"));
    }
  }

  /// Takes `total` bytes at once and fills, then reads, then gives them back and takes a part of
  /// them again.
  static void use_scratch(scope& s, std::uint64_t total, digest& seen) {
    if (total == 0) {
      return;
    }
    auto const use = [&](std::uint32_t i) {
      tensor_view const t = s.scratch(dtype::u8, {piece(total, i)});
      s.run([&] { detail::fill_raw(t, seen, 100 + i); });
      return t;
    };
    {
      auto const outer = s.op("outer");
      tensor_view const a = use(0);
      auto const inner = s.op("inner");
      tensor_view const b = use(1);
      tensor_view const c = use(2);
      inner.run([&] {
        for (tensor_view const& t : {a, b, c}) {
          seen.tensor(t);
        }
      });
    }
    auto const again = s.op("again");
    tensor_view const d = use(0);
    again.run([&] { seen.tensor(d); });
  }

  trace::block_shape facts_;
  std::vector<model::parameter> parameters_{};
  std::vector<bool> tied_{};
  std::uint64_t batch_ = 0;
  bool first_ = false;
  bool last_ = false;
};

/// Stands in for a block::stack where the number of blocks is known at run time only. Its dry run
/// has the trace's fingerprint.
class synthetic_model {
 public:
  explicit synthetic_model(trace::trace facts) : facts_(std::move(facts)) {
    for (std::size_t b = 0; b < facts_.blocks.size(); ++b) {
      blocks_.emplace_back(facts_, make_id<block_id>(b));
    }
  }

  trace::trace const& facts() const noexcept { return facts_; }

  block::table entries(model::job const& job) const {
    PROTRAIN_EXPECT(job == facts_.job, "a synthetic model is made for one job");
    block::detail::table_builder builder{};
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      block::description d{};
      block_builder describe(facts_.job, 0, d);
      blocks_[b].describe(describe);
      builder.add(erase(b), 0, d);
    }
    block::table out = std::move(builder).finish();
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      out.blocks[b].shape = facts_.blocks[b].value;
    }
    return out;
  }

 private:
  block::detail::layered erase(std::size_t b) const {
    block::detail::layered out = block::detail::erase(blocks_[b], "");
    out.pinned = facts_.shape(make_id<block_id>(b)).pinned;
    return out;
  }

  trace::trace facts_;
  std::vector<synthetic_block> blocks_{};
};

}  // namespace protrain::test
