// SPDX-License-Identifier: Apache-2.0
// A block whose recompute reads a frozen value and saves what comes of it: the value stays from
// there to the end of the block's backward, sharded over three ranks too.

#include "protrain/device/serial/serial_device.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/schedule/program.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/support/ranks.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace frozen_pitfalls_test {

namespace {

using namespace protrain;
using schedule::opcode;
using schedule::role;

/// y = linear * normed, where normed = norm * x is saved and norm is frozen. Backward reads both.
template <class T>
class frozen_norm_layer {
 public:
  void describe(block_builder& b) {
    rows_ = b.job().micro_batch * b.job().sequence;
    norm_ = b.parameter("norm", {width}, {.trainable = false});
    linear_ = b.parameter("linear", {width});
    b.input({rows_, width});
    b.output({rows_, width});
    b.reads_input(false);
  }
  void forward(scope& s, tensor_view x, tensor_view y) const {
    tensor_view const normed = s.save("normed", dtype::f32, {rows_ * width});
    s.run([&] {
      for (std::uint64_t k = 0; k < rows_ * width; ++k) {
        float const n = load(s.value(norm_), k % width) * load(x, k);
        normed.as<float>()[k] = n;
        store(y, k, load(s.value(linear_), k % width) * n);
      }
    });
  }
  void backward(scope& s, tensor_view, tensor_view dy, tensor_view dx) const {
    tensor_view const normed = s.saved("normed");
    s.run([&] {
      for (std::uint64_t k = 0; k < rows_ * width; ++k) {
        tensor_view const g = s.gradient(linear_);
        std::uint64_t const at = k % width;
        store(g, at, load(g, at) + load(dy, k) * normed.as<float const>()[k]);
        store(dx, k, load(dy, k) * load(s.value(linear_), at) * load(s.value(norm_), at));
      }
    });
  }

 private:
  static constexpr std::uint64_t width = 10;
  static float load(tensor_view const& t, std::uint64_t k) {
    return test::detail::load(t.as<T const>()[k]);
  }
  static void store(tensor_view const& t, std::uint64_t k, float v) {
    test::detail::store(t.as<T>()[k], v);
  }

  parameter_ref norm_{};
  parameter_ref linear_{};
  std::uint64_t rows_ = 0;
};

template <class T>
test::subject model(std::uint64_t ranks, std::uint64_t accumulate, dtype type) {
  model::job job = test::job_of(type, accumulate, 0.05F);
  job.micro_batch = 2;
  job.sequence = 3;
  job.world = ranks;
  test::mlp_config const config{};
  return test::make_subject(stack{test::mlp_input<T>(config),
                                  repeat(3, frozen_norm_layer<T>{}, "layer"),
                                  test::mlp_head<T>(config)},
                            job,
                            test::uniform_values(0.9F));
}

/// Where the chunk's value lies for instruction `i`.
allocation_id value_of(schedule::program const& p, std::size_t i, chunk_id chunk) {
  for (schedule::operand const& o : p.operands_of(p.instructions[i])) {
    if (o.what == role::value && o.chunk == chunk) {
      return o.allocation;
    }
  }
  return {};
}

/// What is wrong with the values that recomputing blocks read, and how many there are.
struct residency {
  std::string wrong{};
  std::uint64_t frozen = 0;
};

residency look(schedule::program const& p, chunk::layout const& l) {
  residency out;
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    schedule::instruction const& at = p.instructions[i];
    if (at.op != opcode::recompute) {
      continue;
    }
    auto const end = std::ranges::find_if(p.instructions, [&](schedule::instruction const& other) {
      return other.op == opcode::backward && other.block == at.block &&
             other.micro_batch == at.micro_batch;
    });
    auto const last = static_cast<std::size_t>(end - p.instructions.begin());
    for (chunk_id const c : l.chunks_of[at.block.index()]) {
      std::string const name =
          "block " + std::to_string(at.block.value) + ", chunk " + std::to_string(c.value) + ": ";
      allocation_id const slot = value_of(p, i, c);
      out.frozen += l[c].trainable ? 0U : 1U;
      if (!slot.valid() || end == p.instructions.end() || value_of(p, last, c) != slot) {
        out.wrong += name + "backward reads it elsewhere; ";
        continue;
      }
      schedule::allocation const& a = p.allocations[slot.index()];
      if (a.begin > i || a.end <= last) {
        out.wrong += name + "released before backward; ";
      }
      for (std::size_t k = i; k <= last; ++k) {
        for (schedule::operand const& o : p.operands_of(p.instructions[k])) {
          if (o.allocation == slot && schedule::writes(o.mode)) {
            out.wrong += name + "written again; ";
          }
        }
      }
    }
  }
  return out;
}

void check(test::subject const& s) {
  test::outcome const plain = test::train_plain_ranks(s, 3, test::between::nothing);
  for (std::uint32_t const more_slots : {0U, 1U}) {
    auto const parts = test::parts_of(
        s,
        {.persistent = {0}, .counts = {.checkpoint = 9}, .capacity = 10, .more_slots = more_slots});
    for (schedule::program const& p : parts.programs) {
      residency const seen = look(p, parts.layout);
      CHECK(seen.wrong == "");
      // Of three layers, in every micro-batch that trains.
      CHECK(seen.frozen == (schedule::trains(p.part) ? 3 * p.micro_batches : 0));
    }
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      auto const make = [&] {
        return std::make_unique<device::serial_device>(
            device::serial_options{.order = device::run_policy::adversarial, .seed = seed});
      };
      for (test::engine_run const& rank :
           test::train_ranks(make, s, parts, 3, test::between::nothing)) {
        CHECK(test::difference(rank.bits, plain) == "");
        CHECK(rank.memory == "");
      }
    }
  }
}

TEST_CASE("frozen parameter released during recompute: it stays to the end of backward") {
  for (std::uint64_t const ranks : {1U, 3U}) {
    for (std::uint64_t const accumulate : {1U, 2U}) {
      CAPTURE(ranks);
      CAPTURE(accumulate);
      check(model<float>(ranks, accumulate, dtype::f32));
      check(model<bfloat16>(ranks, accumulate, dtype::bf16));
    }
  }
}

}  // namespace

}  // namespace frozen_pitfalls_test
