// SPDX-License-Identifier: Apache-2.0
#pragma once
// Between kernels and blocks: operators that kernels announce become operator scopes of a block, rows
// of a size table become tensors.

#include "examples/transformer/tensor_sizes.hpp"
#include "protrain/block/scope.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace transformer {

using protrain::scope;
using protrain::tensor_view;

inline length extent(std::uint64_t n) { return static_cast<length>(n); }

/// Turns a kernel's `op(name, elements)` into operator scopes: each call ends the one before.
class operators {
 public:
  explicit operators(scope& s) : scope_(s) {}

  // Inlined into a block, g++ 12 no longer sees when the optional is empty, and warns.
  [[gnu::noinline]] float* operator()(std::string_view name, length elements) {
    current_.reset();
    current_.emplace(begin{scope_, name});
    return elements > 0 ? scope_.scratch(protrain::dtype::f32, {elements}).as<float>() : nullptr;
  }

 private:
  // operator_scope can't be moved: the conversion constructs it in place.
  struct begin {
    scope& owner;
    std::string_view name;
    operator protrain::operator_scope() const { return owner.op(name); }
  };
  scope& scope_;
  std::optional<protrain::operator_scope> current_;
};

/// Runs `kernels(op)`; a dry run only takes the workspaces that it would.
template <class Kernels>
void run_operators(scope& s, std::span<operator_size const> sizes, Kernels const& kernels) {
  operators op(s);
  if (s.dry()) {
    for (operator_size const& each : sizes) {
      op(each.name, each.workspace);
    }
  }
  s.run([&] { kernels(op); });
}

/// The same where only some operators run: positions in `sizes`.
template <class Kernels>
void run_operators(scope& s,
                   std::span<operator_size const> sizes,
                   std::span<std::size_t const> which,
                   Kernels const& kernels) {
  operators op(s);
  if (s.dry()) {
    for (std::size_t const i : which) {
      op(sizes[i].name, sizes[i].workspace);
    }
  }
  s.run([&] { kernels(op); });
}

template <class T>
protrain::dtype dtype_of(tensor_size const& size) {
  return size.kind == element_kind::value ? protrain::block::dtype_of<T> : protrain::dtype::f32;
}

/// Takes the rows of a table of saved tensors, under the names in `slots`; those with a level are
/// dropped there.
template <class T, std::size_t N>
std::array<tensor_view, N> save_all(scope& s,
                                    std::array<protrain::block::slot, N> const& slots,
                                    std::array<tensor_size, N> const& sizes,
                                    std::array<protrain::level_ref, N> const& levels = {}) {
  std::array<tensor_view, N> out{};
  for (std::size_t i = 0; i < N; ++i) {
    auto const type = dtype_of<T>(sizes[i]);
    out[i] = levels[i] == protrain::level_ref{}
                 ? s.save(slots[i], type, {sizes[i].elements})
                 : s.save(slots[i], type, {sizes[i].elements}, protrain::dropped_at{levels[i]});
  }
  return out;
}

/// Those that were dropped to be made again, the others to be read.
template <std::size_t N>
std::array<tensor_view, N> rebuild_all(scope& s,
                                       std::array<protrain::block::slot, N> const& slots) {
  std::array<tensor_view, N> out{};
  for (std::size_t i = 0; i < N; ++i) {
    out[i] = s.dropped(slots[i]) ? s.rebuild(slots[i]) : s.saved(slots[i]);
  }
  return out;
}

template <std::size_t N>
std::array<tensor_view, N> saved_all(scope const& s,
                                     std::array<protrain::block::slot, N> const& slots) {
  std::array<tensor_view, N> out{};
  for (std::size_t i = 0; i < N; ++i) {
    out[i] = s.saved(slots[i]);
  }
  return out;
}

/// Takes the rows of a table of temporaries.
template <class T, std::size_t N>
std::array<tensor_view, N> scratch_all(scope& s, std::array<tensor_size, N> const& sizes) {
  std::array<tensor_view, N> out{};
  for (std::size_t i = 0; i < N; ++i) {
    out[i] = s.scratch(dtype_of<T>(sizes[i]), {sizes[i].elements});
  }
  return out;
}

}  // namespace transformer
