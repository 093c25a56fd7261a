// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the plain loop keeps of one parameter, and its fp32 masters in any state format.

#include "protrain/block/tensor_view.hpp"
#include "protrain/core/arithmetic.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/float16.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/model/job.hpp"
#include "protrain/optim/master.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

namespace transformer {
namespace pt = protrain;

/// Calls f with a null pointer to the element type.
template <class F>
void with_type(pt::dtype type, F const& f) {
  if (type == pt::dtype::bf16) {
    f(static_cast<pt::bfloat16*>(nullptr));
  } else if (type == pt::dtype::f16) {
    f(static_cast<pt::float16*>(nullptr));
  } else {
    f(static_cast<float*>(nullptr));
  }
}

struct plain_state {
  plain_state(std::size_t n, pt::model::state_format format)
      : gradient(n),
        low(format == pt::model::state_format::split_master ? n : 0),
        master(format == pt::model::state_format::separate_master ? n : 0),
        m(n),
        v(n) {}

  /// Calls f with the masters of the parameter whose values are `value`; those of a frozen one are
  /// its values.
  template <class F>
  void with_masters(pt::tensor_view const& value, bool trainable, F const& f) {
    with_type(value.type, [&]<class T>(T*) {
      T* const values = value.as<T>();
      if constexpr (std::is_same_v<T, float>) {
        return f(pt::optim::whole_master{values});
      } else {
        if (!trainable) {
          return f(pt::optim::value_alone<T>{values});
        }
        if (!master.empty()) {
          return f(pt::optim::master_beside<T>{master.data(), values});
        }
        if constexpr (std::is_same_v<T, pt::bfloat16>) {
          f(pt::optim::split_halves{values, low.data()});
        }
      }
    });
  }

  std::vector<float> gradient;    // fp32 sum of the contributions
  std::vector<std::int16_t> low;  // of a bf16 value
  std::vector<float> master;      // beside a bf16 or fp16 value
  std::vector<float> m;
  std::vector<float> v;
  bool seen = false;  // in this step
};

/// Contributions of one use on their way over the ranks: an fp32 left fold, rounded once.
class rank_sums {
 public:
  /// Takes rank `rank`'s contribution `g` to a use, named by block and position. True for the last
  /// of `ranks`, whose `g` then is the sum of all.
  template <class T>
  bool add(std::pair<std::size_t, std::uint32_t> const& use,
           T* g,
           std::size_t n,
           std::uint64_t rank,
           std::uint64_t ranks) {
    if (ranks == 1) {
      return true;
    }
    pt::float_environment const environment;
    std::vector<float>& sum = sums_[use];
    sum.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      sum[i] = rank == 0 ? pt::widen(g[i]) : sum[i] + pt::widen(g[i]);
    }
    for (std::size_t i = 0; i < n && rank + 1 == ranks; ++i) {
      g[i] = pt::narrow<T>(sum[i]);
    }
    return rank + 1 == ranks;
  }

 private:
  std::map<std::pair<std::size_t, std::uint32_t>, std::vector<float>> sums_;
};

}  // namespace transformer
