// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small models for tests of the engine: blocks whose gradients are given, and blocks that fail.

#include "protrain/block/scope.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/optim/arithmetic.hpp"
#include "protrain/optim/update_rule.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/knobs.hpp"
#include "test/support/differential.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace protrain::test {

struct constant_tensor {
  std::string name{};
  block::extents shape{};
  bool trainable = true;
  std::string tied{};
};

/// Every gradient element is the micro-batch's "g"; the last block's loss is "g" too.
class constant_block {
 public:
  enum class place : std::uint8_t { first, middle, last };

  constant_block(std::string name, place where, std::vector<constant_tensor> tensors)
      : name_(std::move(name)), where_(where), tensors_(std::move(tensors)) {}

  void describe(block_builder& b) const {
    b.name(name_);
    for (constant_tensor const& t : tensors_) {
      b.parameter(t.name, t.shape, {.trainable = t.trainable, .decay = false, .tied = t.tied});
    }
    b.batch("g", dtype::f32, {1});
    if (where_ != place::first) {
      b.input({1}, dtype::f32);
    }
    if (where_ != place::last) {
      b.output({1}, dtype::f32);
    }
    b.reads_input(false);
  }

  void forward(scope& s, tensor_view, tensor_view y) const {
    s.run([&] {
      if (where_ == place::last) {
        s.loss(0, *s.batch("g").as<float const>());
      } else {
        *y.as<float>() = 0;
      }
    });
  }

  void backward(scope& s, tensor_view, tensor_view, tensor_view dx) const {
    s.run([&] {
      if (dx) {
        *dx.as<float>() = 0;
      }
      float const g = *s.batch("g").as<float const>();
      for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
        fill(s.gradient({i}), g);
      }
    });
  }

 private:
  static void fill(tensor_view const& to, float g) {
    if (to && to.type == dtype::bf16) {
      std::ranges::fill(to.elements_as<bfloat16>(), to_bfloat16(g));
    } else if (to) {
      std::ranges::fill(to.elements_as<float>(), g);
    }
  }

  std::string name_;
  place where_;
  std::vector<constant_tensor> tensors_;
};

/// A job of one sample with the default state format of `type`.
inline model::job job_of(dtype type, std::uint64_t accumulate = 1, float clip = 0) {
  return {.micro_batch = 1,
          .sequence = 1,
          .accumulate = accumulate,
          .type = type,
          .state = model::default_state(type),
          .clip = clip};
}

/// Three constant blocks: `first`, `middle` and `last` list their tensors.
inline subject constant_model(model::job const& job,
                              std::vector<constant_tensor> first,
                              std::vector<constant_tensor> middle,
                              std::vector<constant_tensor> last,
                              value_loader load = uniform_values(0)) {
  using place = constant_block::place;
  return make_subject(stack{constant_block("first", place::first, std::move(first)),
                            constant_block("middle", place::middle, std::move(middle)),
                            constant_block("last", place::last, std::move(last))},
                      job,
                      std::move(load));
}

/// 1,000 + 37 + 300 + 256 = 1,593 trainable elements in chunks of their own.
inline subject four_tensors(model::job const& job, value_loader load = uniform_values(0)) {
  return constant_model(
      job, {{"a", {1000}}, {"b", {37}}}, {{"c", {10, 30}}}, {{"d", {256}}}, std::move(load));
}

/// The batch "g" of a constant model, by micro-batch.
class constant_batch {
 public:
  explicit constant_batch(std::vector<float> g) : g_(std::move(g)) {
    data_.add("g", g_.data(), g_.size() * sizeof(float)).targets(g_.size());
  }
  constant_batch(constant_batch const&) = delete;
  constant_batch& operator=(constant_batch const&) = delete;
  operator runtime::batch const&() const noexcept { return data_; }

 private:
  std::vector<float> g_;
  runtime::batch data_{};
};

/// p -= rate * scale * gradient: starting from zeros, parameters show the gradient itself.
struct descent {
  using policy_tag = optim::update_rule_tag;
  struct step_type {
    float rate = 0;
    bool operator==(step_type const&) const = default;
  };
  static constexpr std::size_t state_tensors = 0;

  step_type prepare(double learning_rate, std::int64_t, bool) const {
    return {static_cast<float>(learning_rate)};
  }
  static void element(step_type const& step,
                      float s,
                      float gradient,
                      float& p,
                      optim::element_state<descent>&) noexcept {
    p -= step.rate * (s * gradient);
  }
  bool operator==(descent const&) const = default;
};
static_assert(optim::update_rule<descent>);

/// Where things are and what happens to saved tensors.
struct placement {
  std::vector<std::uint8_t> persistent{};  ///< by chunk; the last one counts for the rest
  activation::counts counts{};
  update::timing time = update::timing::after_backward;
  std::uint64_t capacity = 128;
  std::uint32_t defer = 0;
  std::uint32_t unroll = schedule::default_unroll;
  std::uint32_t swap_ahead = 1;
  std::uint32_t more_slots = 0;           ///< buffers and gradient slots beyond the fewest
  std::vector<std::uint8_t> streamed{0};  ///< by chunk, of those that aren't persistent
  std::vector<std::uint8_t> levels{};     ///< by block: its save level; empty: all 0
};

inline std::vector<placement> placements() {
  return {{.persistent = {1}},
          {.persistent = {0}, .counts = {.swap = 9, .checkpoint = 9, .interval = 2}},
          {.persistent = {1, 0, 1, 0}, .counts = {.swap = 1, .checkpoint = 1}},
          {.persistent = {0, 1}, .counts = {.checkpoint = 9}, .capacity = 5000},
          {.persistent = {0, 0, 1, 0}, .counts = {.swap = 1}, .streamed = {1, 0, 0, 1}}};
}

struct planned {
  chunk::layout layout{};
  std::vector<schedule::program> programs{};
};

inline planned plan(subject const& s, placement const& p) {
  planned out{.layout = chunk::make_layout(s.facts, p.capacity)};
  schedule::knobs k{};
  for (std::size_t c = 0; c < out.layout.chunks.size(); ++c) {
    k.persistent.push_back(p.persistent[std::min(c, p.persistent.size() - 1)]);
    bool const streamed = p.streamed[std::min(c, p.streamed.size() - 1)] != 0;
    k.sites.push_back(k.persistent.back() != 0 ? update::site::gpu
                      : streamed               ? update::site::streamed
                                               : update::site::cpu);
  }
  k.strategies = activation::interleaved{}.assign(activation::pins_of(s.facts), p.counts);
  k.buffers = schedule::fewest_buffers(out.layout, k.persistent) + p.more_slots;
  k.gradient_slots += p.more_slots;
  k.swap_ahead = p.swap_ahead;
  k.time = p.time;
  k.defer = p.defer;
  k.unroll = p.unroll;
  k.levels = p.levels;
  auto programs = schedule::compile_segments(s.facts, out.layout, k);
  REQUIRE(programs.has_value());
  out.programs = *std::move(programs);
  return out;
}

inline runtime::plan_parts parts_of(subject const& s, placement const& p) {
  planned made = plan(s, p);
  return {s.facts, std::move(made.layout), std::move(made.programs)};
}

/// When CPU updates happen, how many of them wait for the next step, and how many micro-batches a
/// program has.
struct update_time {
  char const* name;
  update::timing time;
  std::uint32_t defer = 0;
  std::uint32_t unroll = schedule::default_unroll;
};
inline constexpr std::array<update_time, 8> update_times{
    {{"after backward", update::timing::after_backward},
     {"during backward", update::timing::during_backward},
     {"before next use, nothing deferred", update::timing::before_next_use},
     {"before next use, one deferred", update::timing::before_next_use, 1},
     {"before next use, all deferred", update::timing::before_next_use, 99},
     {"after backward, a program per micro-batch", update::timing::after_backward, 0, 1},
     {"during backward, a program per micro-batch", update::timing::during_backward, 0, 1},
     {"before next use, two deferred, a program per micro-batch",
      update::timing::before_next_use,
      2,
      1}}};

/// Bytes of a category in both spaces, each at its most.
inline std::uint64_t bytes_of(schedule::program const& p, category what) {
  std::uint64_t sum = 0;
  for (space const where : {space::device, space::host}) {
    sum += schedule::memory_of(p, where).maximum[static_cast<std::size_t>(what)];
  }
  return sum;
}

/// What a trapped block does instead of its work, in its `fail_at`-th pass of that direction.
struct trap {
  enum class deed : std::uint8_t { throws, greedy_scratch, greedy_save };
  block::block_entry inner{};
  deed what = deed::throws;
  std::uint64_t fail_at = 0;
  mutable std::atomic<std::uint64_t> calls{0};

  void passed(scope& s) const {
    if (++calls == fail_at) {
      switch (what) {
        case deed::throws:
          throw std::runtime_error("the trap snapped");
        case deed::greedy_scratch: {
          auto const op = s.op("greedy");
          s.scratch(dtype::u8, {1 << 20});
          break;
        }
        case deed::greedy_save:
          s.save("loot", dtype::u8, {1 << 20});
          break;
      }
    }
  }
};

/// `t` must outlive `s`; it counts every pass of that direction over `block`.
inline void set_trap(subject& s, std::size_t block, bool backward, trap& t) {
  block::block_entry& entry = s.table.blocks[block];
  t.inner = entry;
  entry.object = &t;
  entry.forward = [](void const* object, scope& at, tensor_view x, tensor_view y) {
    auto const& own = *static_cast<trap const*>(object);
    own.inner.forward(own.inner.object, at, x, y);
  };
  entry.backward =
      [](void const* object, scope& at, tensor_view x, tensor_view dy, tensor_view dx) {
        auto const& own = *static_cast<trap const*>(object);
        own.inner.backward(own.inner.object, at, x, dy, dx);
      };
  if (backward) {
    entry.backward =
        [](void const* object, scope& at, tensor_view x, tensor_view dy, tensor_view dx) {
          auto const& own = *static_cast<trap const*>(object);
          own.inner.backward(own.inner.object, at, x, dy, dx);
          own.passed(at);
        };
  } else {
    entry.forward = [](void const* object, scope& at, tensor_view x, tensor_view y) {
      auto const& own = *static_cast<trap const*>(object);
      own.inner.forward(own.inner.object, at, x, y);
      own.passed(at);
    };
  }
}

/// What `call` throws; empty if nothing.
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (std::exception const& e) {
    return e.what();
  }
  return "";
}

inline bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

template <device::device Device>
std::uint64_t live(Device const& d) {
  return d.usage_of(space::device).live + d.usage_of(space::host).live;
}

}  // namespace protrain::test
