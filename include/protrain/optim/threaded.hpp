// SPDX-License-Identifier: Apache-2.0
#pragma once
// The optimizer's loops on several threads: the same bits as on one, whatever their number.

#include "protrain/core/config.hpp"
#include "protrain/device/workers.hpp"
#include "protrain/optim/accumulate.hpp"
#include "protrain/optim/arithmetic.hpp"
#include "protrain/optim/exact_sum.hpp"
#include "protrain/optim/master.hpp"
#include "protrain/optim/norm.hpp"
#include "protrain/optim/pieces.hpp"
#include "protrain/optim/update.hpp"
#include "protrain/optim/update_rule.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace protrain::inline v0::optim {

/// Calls f(piece) for pieces that make up `n` elements, each on a thread of its own.
template <class F>
void in_pieces(device::workers& crew, std::uint64_t n, F const& f) {
  std::uint32_t const pieces = pieces_of(n, crew.size());
  crew.run(pieces, [&](std::uint32_t index) { f(piece_of(n, pieces, index)); });
}

/// A sum that several threads add to. It is exact, so their order doesn't show.
class shared_sum {
 public:
  /// Adds to `total`, which nobody else uses meanwhile.
  explicit shared_sum(exact_sum& total) : total_(total) {}
  void merge(exact_sum const& part) {
    std::lock_guard const lock(mutex_);
    total_.merge(part);
  }

 private:
  std::mutex mutex_{};
  exact_sum& total_;
};

/// As `update_range` without workers.
template <update_rule R, gradient_element G, master_arrays M>
  requires requires(M const& m, std::uint64_t n) { advanced(m, n); }
void update_range(device::workers& crew,
                  typename R::step_type const& step,
                  float s,
                  G const* gradient,
                  M const& master,
                  state_arrays<R> const& state,
                  std::size_t n) {
  in_pieces(crew, n, [&](element_range const& own) {
    state_arrays<R> from = state;
    for (float*& each : from) {
      each += own.begin;
    }
    update_range<R>(step, s, gradient + own.begin, advanced(master, own.begin), from, own.size());
  });
}

/// As `store` without workers: the first contribution of several.
template <gradient_element T>
void store(device::workers& crew, float* accumulator, T const* contribution, std::size_t n) {
  in_pieces(crew, n, [&](element_range const& own) {
    store(accumulator + own.begin, contribution + own.begin, own.size());
  });
}

/// As `add` without workers: a further contribution.
template <gradient_element T>
void add(device::workers& crew, float* accumulator, T const* contribution, std::size_t n) {
  in_pieces(crew, n, [&](element_range const& own) {
    add(accumulator + own.begin, contribution + own.begin, own.size());
  });
}

/// As `add_squares` without workers.
template <gradient_element T>
void add_squares(device::workers& crew, exact_sum& total, T const* gradient, std::size_t n) {
  shared_sum all(total);
  in_pieces(crew, n, [&](element_range const& own) {
    exact_sum part;
    add_squares(part, gradient + own.begin, own.size());
    all.merge(part);
  });
}

}  // namespace protrain::inline v0::optim
