// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the plain loop keeps of one parameter, and its fp32 masters in any state format.

#include "protrain/block/tensor_view.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/float16.hpp"
#include "protrain/model/job.hpp"
#include "protrain/optim/master.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>
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

}  // namespace transformer
