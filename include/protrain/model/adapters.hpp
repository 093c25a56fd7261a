// SPDX-License-Identifier: Apache-2.0
#pragma once
// Training a part of a model: frozen parameters, and low-rank adapters beside frozen matrices (LoRA),
// as changes of a parameter table and of the operators that read it.

#include "protrain/core/config.hpp"
#include "protrain/core/dtype.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/text.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/model/job.hpp"
#include "protrain/model/llama.hpp"
#include "protrain/model/operations.hpp"
#include "protrain/model/parameter.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::model {

/// Freezes all parameters but those that `wanted` accepts. How many tensors are left to train.
template <std::predicate<std::string_view> Wanted>
constexpr std::size_t train_only(std::vector<parameter>& table, Wanted const& wanted) {
  std::size_t left = 0;
  for (parameter& p : table) {
    p.trainable = wanted(p.name.view());
    left += p.trainable ? 1 : 0;
  }
  return left;
}

namespace detail {

inline constexpr std::string_view weight_suffix = ".weight";

/// The name of a parameter of the same module: "x.weight" -> "x" + suffix.
constexpr text sibling(std::string_view name, std::string_view suffix) {
  return joined(name.substr(0, name.size() - weight_suffix.size()), suffix);
}

constexpr parameter adapter_of(parameter const& p,
                               std::string_view suffix,
                               std::uint64_t rows,
                               std::uint64_t columns) {
  return {.name = sibling(p.name.view(), suffix),
          .shape = {rows, columns},
          .type = p.type,
          .uses = p.uses};
}

}  // namespace detail

/// Gives each matrix that `wanted` accepts two trainable factors right behind it: A [rank, inputs] in
/// "<module>.lora_A.weight" and B [outputs, rank] in "<module>.lora_B.weight". Tensors of block 0, which
/// embeds, and tied ones get none, and none whose extents are below `rank`. Freezes nothing. How many
/// matrices got them; `rank` is positive.
template <std::predicate<std::string_view> Wanted>
constexpr std::size_t add_adapters(std::vector<parameter>& table,
                                   std::uint64_t rank,
                                   Wanted const& wanted) {
  PROTRAIN_EXPECT(rank > 0, "an adapter of rank 0 is none");
  std::vector<parameter> out;
  std::size_t added = 0;
  for (parameter& p : table) {
    bool const matrix = p.shape.size() == 2 && p.name.view().ends_with(detail::weight_suffix) &&
                        p.uses.size() == 1 && p.uses.front() != block_id{0} &&
                        std::min(p.shape[0], p.shape[1]) >= rank;
    bool const adapted = matrix && wanted(p.name.view());
    out.push_back(std::move(p));
    if (adapted) {
      parameter const base = out.back();
      out.push_back(detail::adapter_of(base, ".lora_A.weight", rank, base.shape[1]));
      out.push_back(detail::adapter_of(base, ".lora_B.weight", base.shape[0], rank));
      ++added;
    }
  }
  table = std::move(out);
  return added;
}

namespace detail {

/// The parameters that one block reads.
using block_rows = std::vector<parameter const*>;

/// The row of `module` with `suffix`, or null; modules of layers are named without the layer's number.
constexpr parameter const* row_of(block_rows const& rows,
                                  std::string_view module,
                                  std::string_view suffix) {
  for (parameter const* const p : rows) {
    std::string_view name = p->name.view();
    if (name.ends_with(suffix)) {
      name.remove_suffix(suffix.size());
      bool const whole = name == module;
      bool const inside = name.size() > module.size() && name.ends_with(module) &&
                          name[name.size() - module.size() - 1] == '.';
      if (whole || inside) {
        return p;
      }
    }
  }
  return nullptr;
}

/// y += x A^T B^T beside a product: two thin products more, which mostly wait for x and y. x A^T is
/// kept, and backward has dy B for a while.
constexpr void add_factors(operation& o, parameter const& a, parameter const& b, job const& j) {
  std::uint64_t const tokens = checked_mul(j.micro_batch, j.sequence);
  std::uint64_t const weights = checked_add(elements(a), elements(b));
  std::uint64_t const flops = product(2, tokens, weights);
  std::uint64_t const middle = granules(product(tokens, a.shape.front(), size_of(j.type)));
  std::uint64_t const thin = checked_add(checked_mul(weights, size_of(j.type)), middle);
  auto const wide = [&](std::uint64_t channels) {
    return product(tokens, channels, size_of(j.type));
  };
  std::uint64_t const inputs = wide(a.shape.back());
  std::uint64_t const outputs = wide(b.shape.front());
  auto const add = [](std::uint64_t& sum, std::uint64_t more) { sum = checked_add(sum, more); };
  add(o.flops, flops);
  add(o.moved, checked_add(thin, checked_add(inputs, checked_mul(2, outputs))));
  add(o.backward_flops, flops);
  add(o.backward_moved, checked_add(thin, checked_add(outputs, checked_mul(2, inputs))));
  add(o.weight_flops, flops);
  add(o.weight_moved, checked_add(thin, checked_add(inputs, outputs)));
  add(o.kept, middle);
  add(o.scratch_backward, middle);
}

/// What backward does for weights, by the share of them that are trained.
constexpr void fit(operation& o, block_rows const& rows, job const& j) {
  std::uint64_t all = 0;
  std::uint64_t trained = 0;
  for (std::string_view const module : o.weights) {
    parameter const* const p = module.empty() ? nullptr : row_of(rows, module, weight_suffix);
    if (p != nullptr) {
      all = checked_add(all, elements(*p));
      trained = checked_add(trained, p->trainable ? elements(*p) : 0);
    }
  }
  if (all > 0) {
    o.weight_flops = mul_div(o.weight_flops, trained, all);
    o.weight_moved = mul_div(o.weight_moved, trained, all);
  }
  for (std::string_view const module : o.weights) {
    parameter const* const a = module.empty() ? nullptr : row_of(rows, module, ".lora_A.weight");
    parameter const* const b = module.empty() ? nullptr : row_of(rows, module, ".lora_B.weight");
    if (a != nullptr && b != nullptr) {
      add_factors(o, *a, *b, j);
    }
  }
}

}  // namespace detail

/// The operators of a block whose parameters are `rows`: without gradients of what is frozen, with
/// the adapters there are. Saved tensors stay, as if all were trained.
constexpr block_operations fitted(block_operations block,
                                  std::vector<parameter const*> const& rows,
                                  job const& j) {
  for (operation& o : block.operators) {
    if (!o.weights.front().empty()) {
      detail::fit(o, rows, j);
    }
  }
  return block;
}

}  // namespace protrain::inline v0::model
