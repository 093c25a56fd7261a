// SPDX-License-Identifier: Apache-2.0
#pragma once
// Root-mean-square normalisation over the channels of each row, and its gradients: a layer norm
// without mean and bias.

#include "examples/transformer/simd.hpp"

namespace transformer {

/// One row of y = x rstd gamma.
template <class T>
void rms_norm_apply_row(length channels, T const* x, T const* gamma, accumulator_t<T> rstd, T* y) {
  auto const inverse = pack<accumulator_t<T>>::all(rstd);
  for_packs<accumulator_t<T>>(channels, [&](length i, length count) {
    store(y + i, load(x + i, count) * inverse * load(gamma + i, count), count);
  });
}

/// y from given rstd[rows]: what a save level that drops y rebuilds it with.
template <class T>
void rms_norm_apply(
    length rows, length channels, T const* x, T const* gamma, accumulator_t<T> const* rstd, T* y) {
  for (length r = 0; r < rows; ++r) {
    rms_norm_apply_row(channels, x + r * channels, gamma, rstd[r], y + r * channels);
  }
}

/// y = x rstd gamma with rstd = 1 / sqrt(mean x^2 + epsilon). Writes y[rows, channels] and keeps
/// rstd[rows].
template <class T>
void rms_norm_forward(length rows,
                      length channels,
                      T const* x,
                      T const* gamma,
                      accumulator_t<T> epsilon,
                      T* y,
                      accumulator_t<T>* rstd) {
  using real = accumulator_t<T>;
  real const share = real{1} / static_cast<real>(channels);
  for (length r = 0; r < rows; ++r) {
    T const* const row = x + r * channels;
    real const square = share * sum_packs<real>(channels, [&](length i, length count) {
                          auto const value = load(row + i, count);
                          return value * value;
                        });
    rstd[r] = real{1} / std::sqrt(square + epsilon);
    rms_norm_apply_row(channels, row, gamma, rstd[r], y + r * channels);
  }
}

/// dx of one row; `beside` (may be null) is added: the gradient that came along the residual.
template <class T, class G>
void rms_norm_backward_row(length channels,
                           T const* x,
                           T const* gamma,
                           accumulator_t<T> rstd,
                           G const* dy,
                           T const* beside,
                           T* dx) {
  using real = accumulator_t<T>;
  real const share = real{1} / static_cast<real>(channels);
  auto const inverse = pack<real>::all(rstd);
  auto const normal = [&](length i, length count) { return load(x + i, count) * inverse; };
  auto const slope = [&](length i, length count) {
    return load(dy + i, count) * load(gamma + i, count);
  };
  auto const mean_product =
      pack<real>::all(share * sum_packs<real>(channels, [&](length i, length count) {
                        return slope(i, count) * normal(i, count);
                      }));
  for_packs<real>(channels, [&](length i, length count) {
    auto value = (slope(i, count) - normal(i, count) * mean_product) * inverse;
    value = beside == nullptr ? value : value + load(beside + i, count);
    store(dx + i, value, count);
  });
}

/// Overwrites dx[rows, channels] and dgamma[channels]. dy has type T or the accumulator's; `beside`
/// (null: none) is added to dx and may be dx itself.
template <class T, class G>
void rms_norm_backward(length rows,
                       length channels,
                       T const* x,
                       T const* gamma,
                       accumulator_t<T> const* rstd,
                       G const* dy,
                       T const* beside,
                       T* dx,
                       T* dgamma) {
  using real = accumulator_t<T>;
  for (length r = 0; r < rows; ++r) {
    length const at = r * channels;
    rms_norm_backward_row(channels,
                          x + at,
                          gamma,
                          rstd[r],
                          dy + at,
                          beside == nullptr ? nullptr : beside + at,
                          dx + at);
  }
  sum_columns<real>(
      rows,
      channels,
      [&](length r, length i, length count) {
        length const at = r * channels + i;
        return load(dy + at, count) * (load(x + at, count) * pack<real>::all(rstd[r]));
      },
      [&](length i, length count, pack<real> sum) { store(dgamma + i, sum, count); });
}

}  // namespace transformer
