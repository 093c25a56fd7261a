// SPDX-License-Identifier: Apache-2.0
#pragma once
// Turns descriptions into a table: resolves ties, merges batch tensors, compares neighbours.
// Included by block/stack.hpp alone.

#include "protrain/block/builder.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace protrain::inline v0::block::detail {

inline std::string print(tensor_facts const& t) {
  std::string out = std::string(name_of(t.type)) + "[";
  for (std::uint32_t i = 0; i < t.shape.rank; ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(t.shape.sizes[i]);
  }
  return out + "]";
}

/// What all layers of one object have in common.
struct layered {
  void const* object = nullptr;
  forward_function forward = nullptr;
  backward_function backward = nullptr;
  rebuild_function rebuild = nullptr;
  trace::pin pinned = trace::pin::free;
  std::string prefix{};  ///< empty outside a repeat
};

class table_builder {
 public:
  /// Appends a block. Layers of one object follow each other.
  void add(layered const& from, std::uint32_t layer, description const& d) {
    bool const repeated = !from.prefix.empty();
    std::string const prefix = repeated ? from.prefix + "." + std::to_string(layer) : "";
    std::string const own = d.name.empty() ? "block " + std::to_string(out_.blocks.size()) : d.name;
    block_entry e{.name = repeated ? prefix : own,
                  .shape_name = repeated ? from.prefix : own,
                  .layer = layer,
                  .input = d.input.value_or(tensor_facts{}),
                  .output = d.output.value_or(tensor_facts{}),
                  .reads_input = d.reads_input,
                  .flops = d.flops,
                  .levels = d.levels,
                  .pinned = from.pinned,
                  .object = from.object,
                  .forward = from.forward,
                  .backward = from.backward,
                  .rebuild = from.rebuild};
    check_levels(e);
    for (declared_parameter const& p : d.parameters) {
      e.parameters.push_back(resolve(e, prefix, p));
    }
    for (batch_tensor const& b : d.batch) {
      e.batch.push_back(resolve(e, b));
    }
    check_handles(e, layer);
    check_boundary(e, d);
    e.shape = shape_of(e);
    out_.blocks.push_back(std::move(e));
    has_output_ = d.output.has_value();
  }

  table finish() && {
    if (has_output_) {
      throw block_error(
          out_.blocks.back().name, "output", "is the last block and must not have an output");
    }
    return std::move(out_);
  }

 private:
  model::parameter* find(std::string_view name) {
    for (model::parameter& p : out_.parameters) {
      if (p.name.view() == name) {
        return &p;
      }
    }
    return nullptr;
  }

  entry_parameter resolve(block_entry const& e,
                          std::string const& prefix,
                          declared_parameter const& p) {
    std::string const full = prefix.empty() ? p.name : prefix + "." + p.name;
    model::parameter* row = find(p.tied.empty() ? full : p.tied);
    if (p.tied.empty()) {
      if (row != nullptr) {
        throw block_error(
            e.name,
            full,
            "parameter " + in_quotes(full) + " exists already; " +
                "names are unique over the whole model (give repeats other prefixes)");
      }
      out_.parameters.push_back({.name = text(full),
                                 .type = p.facts.type,
                                 .trainable = p.trainable,
                                 .decay = p.decay,
                                 .learning_rate_scale = p.learning_rate_scale});
      row = &out_.parameters.back();
      row->shape.assign(p.facts.shape.sizes.begin(),
                        p.facts.shape.sizes.begin() + p.facts.shape.rank);
    } else {
      check_tie(e, full, p, row);
    }
    row->uses.push_back(make_id<block_id>(out_.blocks.size()));
    return {.name = p.name,
            .id = make_id<parameter_id>(static_cast<std::size_t>(row - out_.parameters.data())),
            .facts = p.facts,
            .trainable = row->trainable};
  }

  void check_tie(block_entry const& e,
                 std::string const& full,
                 declared_parameter const& p,
                 model::parameter const* row) const {
    if (row == nullptr) {
      throw block_error(e.name,
                        full,
                        "parameter " + in_quotes(full) + " is tied to " + in_quotes(p.tied) +
                            ", which no earlier block declares");
    }
    if (facts_of(*row) != p.facts) {
      throw block_error(e.name,
                        full,
                        "parameter " + in_quotes(full) + " is " + print(p.facts) + " but tied to " +
                            in_quotes(p.tied) + ", which is " + print(facts_of(*row)));
    }
    if (row->uses.back() == make_id<block_id>(out_.blocks.size())) {
      throw block_error(e.name,
                        full,
                        "parameter " + in_quotes(full) + " is tied to " + in_quotes(p.tied) +
                            ", which this block uses already; use that handle");
    }
  }

  entry_batch resolve(block_entry const& e, batch_tensor const& b) {
    std::size_t row = 0;
    while (row < out_.batch.size() && out_.batch[row].name != b.name) {
      ++row;
    }
    if (row == out_.batch.size()) {
      out_.batch.push_back(b);
    } else if (out_.batch[row].facts != b.facts) {
      throw block_error(e.name,
                        b.name,
                        "batch tensor " + in_quotes(b.name) + " is " + print(b.facts) +
                            " here and " + print(out_.batch[row].facts) + " in an earlier block");
    }
    return {.name = b.name, .index = static_cast<std::uint32_t>(row), .facts = b.facts};
  }

  static void check_levels(block_entry const& e) {
    if (!e.levels.empty() && e.rebuild == nullptr) {
      throw block_error(e.name,
                        e.levels.front().name,
                        "declares save level " + in_quotes(e.levels.front().name) +
                            " but can't make again what it drops; write void rebuild(scope&, "
                            "tensor_view x) const");
    }
  }

  /// A repeated block keeps one set of handles, so each layer must declare the same names.
  void check_handles(block_entry const& e, std::uint32_t layer) const {
    if (layer == 0) {
      return;
    }
    block_entry const& before = out_.blocks.back();
    auto const same = [](auto const& a, auto const& b) { return a.name == b.name; };
    if (!std::ranges::equal(e.parameters, before.parameters, same) ||
        !std::ranges::equal(e.batch, before.batch, same) ||
        !std::ranges::equal(e.levels, before.levels, same)) {
      throw block_error(e.name,
                        e.name,
                        "declares other names than layer " + std::to_string(layer - 1) +
                            "; the handles of a repeated block are shared");
    }
  }

  static bool alike(block_entry const& a, block_entry const& b) {
    auto const parameters = [](entry_parameter const& p, entry_parameter const& q) {
      return p.facts == q.facts && p.trainable == q.trainable;
    };
    return a.object == b.object && a.forward == b.forward && a.input == b.input &&
           a.output == b.output && a.reads_input == b.reads_input && a.flops == b.flops &&
           a.levels == b.levels && std::ranges::equal(a.parameters, b.parameters, parameters) &&
           std::ranges::equal(a.batch, b.batch, {}, &entry_batch::facts, &entry_batch::facts);
  }

  std::uint32_t shape_of(block_entry const& e) {
    for (auto before = out_.blocks.rbegin();
         before != out_.blocks.rend() && before->object == e.object;
         ++before) {
      if (alike(*before, e)) {
        return before->shape;
      }
    }
    return shapes_++;
  }

  /// Against the block before.
  void check_boundary(block_entry const& e, description const& d) const {
    if (out_.blocks.empty()) {
      if (d.input.has_value()) {
        throw block_error(e.name, "input", "is the first block and must not have an input");
      }
      return;
    }
    block_entry const& from = out_.blocks.back();
    if (!has_output_) {
      throw block_error(from.name, "output", "has no output but is not the last block");
    }
    if (!d.input.has_value()) {
      throw block_error(e.name, "input", "has no input but is not the first block");
    }
    if (from.output.bytes() != e.input.bytes() || from.output.type != e.input.type) {
      throw block_error(e.name,
                        "input",
                        "input is " + print(e.input) + " but the output of block " + from.name +
                            " is " + print(from.output));
    }
  }

  table out_{};
  bool has_output_ = false;
  std::uint32_t shapes_ = 0;
};

}  // namespace protrain::inline v0::block::detail
