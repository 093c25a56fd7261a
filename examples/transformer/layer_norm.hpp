// SPDX-License-Identifier: Apache-2.0
#pragma once
// Layer normalisation over the channels of each row, and its gradients.

#include "examples/transformer/simd.hpp"

namespace transformer {

/// y = (x - mean) rstd gamma + beta from given mean[rows] and rstd[rows]: what a save level that
/// drops y rebuilds it with.
template <class T>
void layer_norm_apply(length rows,
                      length channels,
                      T const* x,
                      T const* gamma,
                      T const* beta,
                      accumulator_t<T> const* mean,
                      accumulator_t<T> const* rstd,
                      T* y) {
  using real = accumulator_t<T>;
  for (length r = 0; r < rows; ++r) {
    auto const centre = pack<real>::all(mean[r]);
    auto const inverse = pack<real>::all(rstd[r]);
    for_packs<real>(channels, [&](length i, length count) {
      auto const normal = (load(x + r * channels + i, count) - centre) * inverse;
      store(y + r * channels + i, normal * load(gamma + i, count) + load(beta + i, count), count);
    });
  }
}

/// Writes y[rows, channels] and keeps mean[rows] and rstd[rows].
template <class T>
void layer_norm_forward(length rows,
                        length channels,
                        T const* x,
                        T const* gamma,
                        T const* beta,
                        accumulator_t<T> epsilon,
                        T* y,
                        accumulator_t<T>* mean,
                        accumulator_t<T>* rstd) {
  using real = accumulator_t<T>;
  real const share = real{1} / static_cast<real>(channels);
  for (length r = 0; r < rows; ++r) {
    T const* const row = x + r * channels;
    mean[r] = share * sum_packs<real>(channels,
                                      [&](length i, length count) { return load(row + i, count); });
    auto const centre = pack<real>::all(mean[r]);
    real const variance = share * sum_packs<real>(channels, [&](length i, length count) {
                            auto const distance = load(row + i, count) - centre;
                            return distance * distance;
                          });
    rstd[r] = real{1} / std::sqrt(variance + epsilon);
  }
  layer_norm_apply(rows, channels, x, gamma, beta, mean, rstd, y);
}

/// dx of one row; `beside` (may be null) is added: the gradient that came along the residual.
template <class T, class G>
void layer_norm_backward_row(length channels,
                             T const* x,
                             T const* gamma,
                             accumulator_t<T> mean,
                             accumulator_t<T> rstd,
                             G const* dy,
                             T const* beside,
                             T* dx) {
  using real = accumulator_t<T>;
  real const share = real{1} / static_cast<real>(channels);
  auto const centre = pack<real>::all(mean);
  auto const inverse = pack<real>::all(rstd);
  auto const normal = [&](length i, length count) {
    return (load(x + i, count) - centre) * inverse;
  };
  auto const slope = [&](length i, length count) {
    return load(dy + i, count) * load(gamma + i, count);
  };
  auto const mean_slope = pack<real>::all(share * sum_packs<real>(channels, slope));
  auto const mean_product =
      pack<real>::all(share * sum_packs<real>(channels, [&](length i, length count) {
                        return slope(i, count) * normal(i, count);
                      }));
  for_packs<real>(channels, [&](length i, length count) {
    auto value = (slope(i, count) - mean_slope - normal(i, count) * mean_product) * inverse;
    value = beside == nullptr ? value : value + load(beside + i, count);
    store(dx + i, value, count);
  });
}

/// Overwrites dx[rows, channels], dgamma and dbeta [channels]. dy has type T or the accumulator's;
/// `beside` (null: none) is added to dx and may be dx itself.
template <class T, class G>
void layer_norm_backward(length rows,
                         length channels,
                         T const* x,
                         T const* gamma,
                         accumulator_t<T> const* mean,
                         accumulator_t<T> const* rstd,
                         G const* dy,
                         T const* beside,
                         T* dx,
                         T* dgamma,
                         T* dbeta) {
  using real = accumulator_t<T>;
  for (length r = 0; r < rows; ++r) {
    length const at = r * channels;
    layer_norm_backward_row(channels,
                            x + at,
                            gamma,
                            mean[r],
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
        auto const normal =
            (load(x + at, count) - pack<real>::all(mean[r])) * pack<real>::all(rstd[r]);
        return load(dy + at, count) * normal;
      },
      [&](length i, length count, pack<real> sum) { store(dgamma + i, sum, count); });
  sum_columns<real>(
      rows,
      channels,
      [&](length r, length i, length count) { return load(dy + r * channels + i, count); },
      [&](length i, length count, pack<real> sum) { store(dbeta + i, sum, count); });
}

}  // namespace transformer
