// SPDX-License-Identifier: Apache-2.0
#pragma once
// A small network that really learns, as a user would write it: linear input, residual layers with
// dropout, squared error. Loops in one fixed order and no libm, so that its bits are portable.

#include "protrain/block/stack.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/float16.hpp"
#include "protrain/core/philox.hpp"

#include <cstdint>

namespace protrain::test {

/// Rows of the batch tensors "features" and "targets" (fp32) are tokens: micro_batch x sequence.
struct mlp_config {
  std::uint64_t features = 6;
  std::uint64_t hidden = 10;
  std::uint64_t outputs = 6;
  std::uint32_t layers = 3;
  bool tied = false;  ///< the head uses the input's weight; then outputs = features
};

namespace detail {

inline float load(float x) noexcept { return x; }
inline float load(bfloat16 x) noexcept { return to_float(x); }
inline float load(float16 x) noexcept { return to_float(x); }
inline void store(float& to, float x) noexcept { to = x; }
inline void store(bfloat16& to, float x) noexcept { to = to_bfloat16(x); }
inline void store(float16& to, float x) noexcept { to = to_float16(x); }

/// y[r, o] = sum over i of x[r, i] w(o, i), ascending. `Weight` is called with (o, i).
template <class T, class Weight>
void product(std::uint64_t rows,
             std::uint64_t inputs,
             std::uint64_t outputs,
             T const* x,
             Weight const& w,
             float* y) {
  for (std::uint64_t r = 0; r < rows; ++r) {
    for (std::uint64_t o = 0; o < outputs; ++o) {
      float sum = 0;
      for (std::uint64_t i = 0; i < inputs; ++i) {
        sum += load(x[r * inputs + i]) * w(o, i);
      }
      y[r * outputs + o] = sum;
    }
  }
}

/// dw[o, i] = sum over r of dy[r, o] x[r, i], ascending; overwrites, and does nothing if absent.
template <class T, class X>
void weight_gradient(std::uint64_t rows,
                     std::uint64_t inputs,
                     std::uint64_t outputs,
                     X const* x,
                     float const* dy,
                     T* dw) {
  for (std::uint64_t o = 0; dw != nullptr && o < outputs; ++o) {
    for (std::uint64_t i = 0; i < inputs; ++i) {
      float sum = 0;
      for (std::uint64_t r = 0; r < rows; ++r) {
        sum += dy[r * outputs + o] * load(x[r * inputs + i]);
      }
      store(dw[o * inputs + i], sum);
    }
  }
}

/// db[o] += sum over r of dy[r, o]; adds to zeros, and does nothing if absent.
template <class T>
void bias_gradient(std::uint64_t rows, std::uint64_t outputs, float const* dy, T* db) {
  for (std::uint64_t o = 0; db != nullptr && o < outputs; ++o) {
    float sum = 0;
    for (std::uint64_t r = 0; r < rows; ++r) {
      sum += dy[r * outputs + o];
    }
    store(db[o], load(db[o]) + sum);
  }
}

}  // namespace detail

/// Tokens of a micro-batch that are really there.
inline std::uint64_t rows_of(scope const& s, std::uint64_t sequence) {
  return s.samples() * sequence;
}

/// y = features w' + bias.
template <class T>
class mlp_input {
 public:
  explicit mlp_input(mlp_config const& c) : c_(c) {}

  void describe(block_builder& b) {
    sequence_ = b.job().sequence;
    std::uint64_t const rows = b.job().micro_batch * sequence_;
    b.name("input");
    weight_ = b.parameter("in.weight", {c_.hidden, c_.features});
    bias_ = b.parameter("in.bias", {c_.hidden}, {.decay = false});
    features_ = b.batch("features", dtype::f32, {rows, c_.features});
    b.output({rows, c_.hidden});
    b.reads_input(false);
  }

  void forward(scope& s, tensor_view, tensor_view y) const {
    std::uint64_t const rows = rows_of(s, sequence_);
    auto const op = s.op("linear");
    tensor_view const sums = s.scratch(dtype::f32, {rows, c_.hidden});
    op.run([&] {
      auto const* const w = s.value(weight_).template as<T const>();
      auto const* const bias = s.value(bias_).template as<T const>();
      auto const weight = [&](std::uint64_t o, std::uint64_t i) {
        return detail::load(w[o * c_.features + i]);
      };
      float* const out = sums.as<float>();
      detail::product(
          rows, c_.features, c_.hidden, s.batch(features_).as<float const>(), weight, out);
      for (std::uint64_t k = 0; k < rows * c_.hidden; ++k) {
        detail::store(y.as<T>()[k], out[k] + detail::load(bias[k % c_.hidden]));
      }
    });
  }

  void backward(scope& s, tensor_view, tensor_view dy, tensor_view) const {
    std::uint64_t const rows = rows_of(s, sequence_);
    auto const op = s.op("linear");
    tensor_view const wide = s.scratch(dtype::f32, {rows, c_.hidden});
    op.run([&] {
      for (std::uint64_t k = 0; k < rows * c_.hidden; ++k) {
        wide.as<float>()[k] = detail::load(dy.as<T const>()[k]);
      }
      detail::weight_gradient(rows,
                              c_.features,
                              c_.hidden,
                              s.batch(features_).as<float const>(),
                              wide.as<float const>(),
                              s.gradient(weight_).template as<T>());
      detail::bias_gradient(
          rows, c_.hidden, wide.as<float const>(), s.gradient(bias_).template as<T>());
    });
  }

 private:
  mlp_config c_;
  std::uint64_t sequence_ = 0;
  parameter_ref weight_{};
  parameter_ref bias_{};
  batch_ref features_{};
};

/// y = x + dropout(h / (1 + |h|)) with h = x w' + bias.
template <class T>
class mlp_layer {
 public:
  explicit mlp_layer(mlp_config const& c) : n_(c.hidden) {}

  void describe(block_builder& b) {
    sequence_ = b.job().sequence;
    dropout_ = b.job().dropout;
    std::uint64_t const rows = b.job().micro_batch * sequence_;
    weight_ = b.parameter("weight", {n_, n_});
    bias_ = b.parameter("bias", {n_}, {.decay = false});
    b.input({rows, n_});
    b.output({rows, n_});
  }

  void forward(scope& s, tensor_view x, tensor_view y) const {
    std::uint64_t const rows = rows_of(s, sequence_);
    s.save("x", x);
    tensor_view const h = s.save("h", dtype::f32, {rows, n_});
    linear(s, x, h, rows);
    auto const op = s.op("activation");
    random_key const key = s.rng();
    op.run([&] {
      bool const drops = s.mode() != block::mode::evaluate && dropout_ > 0;
      for (std::uint64_t k = 0; k < rows * n_; ++k) {
        float const v = h.as<float const>()[k];
        float const a = v / (1 + (v < 0 ? -v : v));
        float const kept = drops ? factor(key, k) : 1.0F;
        detail::store(y.as<T>()[k], detail::load(x.as<T const>()[k]) + a * kept);
      }
    });
  }

  void backward(scope& s, tensor_view, tensor_view dy, tensor_view dx) const {
    std::uint64_t const rows = rows_of(s, sequence_);
    tensor_view const x = s.saved("x");
    tensor_view const h = s.saved("h");
    tensor_view const dh = s.scratch(dtype::f32, {rows, n_});
    {
      auto const op = s.op("activation");
      random_key const key = s.rng(0);
      op.run([&] {
        for (std::uint64_t k = 0; k < rows * n_; ++k) {
          float const v = h.as<float const>()[k];
          float const root = 1 / (1 + (v < 0 ? -v : v));
          float const kept = dropout_ > 0 ? factor(key, k) : 1.0F;
          dh.as<float>()[k] = detail::load(dy.as<T const>()[k]) * kept * root * root;
        }
      });
    }
    linear_backward(s, x, dy, dh, dx, rows);
  }

 private:
  void linear(scope& s, tensor_view x, tensor_view h, std::uint64_t rows) const {
    s.op("linear").run([&] {
      auto const* const w = s.value(weight_).template as<T const>();
      auto const* const bias = s.value(bias_).template as<T const>();
      auto const weight = [&](std::uint64_t o, std::uint64_t i) {
        return detail::load(w[o * n_ + i]);
      };
      detail::product(rows, n_, n_, x.as<T const>(), weight, h.as<float>());
      for (std::uint64_t k = 0; k < rows * n_; ++k) {
        h.as<float>()[k] += detail::load(bias[k % n_]);
      }
    });
  }

  void linear_backward(scope& s,
                       tensor_view x,
                       tensor_view dy,
                       tensor_view dh,
                       tensor_view dx,
                       std::uint64_t rows) const {
    auto const op = s.op("linear");
    tensor_view const sums = s.scratch(dtype::f32, {rows, n_});
    op.run([&] {
      auto const* const w = s.value(weight_).template as<T const>();
      auto const transposed = [&](std::uint64_t i, std::uint64_t o) {
        return detail::load(w[o * n_ + i]);
      };
      detail::product(rows, n_, n_, dh.as<float const>(), transposed, sums.as<float>());
      for (std::uint64_t k = 0; k < rows * n_; ++k) {
        detail::store(dx.as<T>()[k], detail::load(dy.as<T const>()[k]) + sums.as<float const>()[k]);
      }
      float const* const gradient = dh.as<float const>();
      detail::weight_gradient(
          rows, n_, n_, x.as<T const>(), gradient, s.gradient(weight_).template as<T>());
      detail::bias_gradient(rows, n_, gradient, s.gradient(bias_).template as<T>());
    });
  }

  /// 0 or 1 / (1 - p); element `k` belongs to sample k / (sequence x n).
  float factor(random_key key, std::uint64_t k) const {
    std::uint64_t const per_sample = sequence_ * n_;
    key.sample += k / per_sample;
    return make_stream(key).uniform(k % per_sample) < dropout_ ? 0.0F : 1 / (1 - dropout_);
  }

  std::uint64_t n_;
  std::uint64_t sequence_ = 0;
  float dropout_ = 0;
  parameter_ref weight_{};
  parameter_ref bias_{};
};

/// Loss of a sample: half the squared distance of x w' from its targets. Saves the differences.
template <class T>
class mlp_head {
 public:
  explicit mlp_head(mlp_config const& c) : c_(c) {
    PROTRAIN_EXPECT(!c.tied || c.outputs == c.features, "a tied head predicts the features");
  }

  void describe(block_builder& b) {
    sequence_ = b.job().sequence;
    std::uint64_t const rows = b.job().micro_batch * sequence_;
    b.name("head");
    weight_ = c_.tied ? b.parameter("out.weight", {c_.hidden, c_.features}, {.tied = "in.weight"})
                      : b.parameter("out.weight", {c_.outputs, c_.hidden});
    b.batch("targets", dtype::f32, {rows, c_.outputs});
    b.input({rows, c_.hidden});
  }

  void forward(scope& s, tensor_view x, tensor_view) const {
    std::uint64_t const rows = rows_of(s, sequence_);
    tensor_view const error = s.save("error", dtype::f32, {rows, c_.outputs});
    auto const op = s.op("squared error");
    op.run([&] {
      detail::product(rows, c_.hidden, c_.outputs, x.as<T const>(), weight(s), error.as<float>());
      float const* const targets = s.batch("targets").as<float const>();
      std::uint64_t const per_sample = sequence_ * c_.outputs;
      for (std::uint64_t sample = 0; sample < s.samples(); ++sample) {
        float sum = 0;
        for (std::uint64_t k = sample * per_sample; k < (sample + 1) * per_sample; ++k) {
          float& e = error.as<float>()[k];
          e -= targets[k];
          sum += e * e;
        }
        s.loss(sample, sum / 2);
      }
    });
  }

  void backward(scope& s, tensor_view x, tensor_view, tensor_view dx) const {
    std::uint64_t const rows = rows_of(s, sequence_);
    tensor_view const error = s.saved("error");
    auto const op = s.op("squared error");
    tensor_view const scaled = s.scratch(dtype::f32, {rows, c_.outputs});
    tensor_view const sums = s.scratch(dtype::f32, {rows, c_.hidden});
    op.run([&] {
      for (std::uint64_t k = 0; k < rows * c_.outputs; ++k) {
        scaled.as<float>()[k] = error.as<float const>()[k] * s.loss_scale();
      }
      auto const w = weight(s);
      auto const transposed = [&](std::uint64_t i, std::uint64_t o) { return w(o, i); };
      float const* const d = scaled.as<float const>();
      detail::product(rows, c_.outputs, c_.hidden, d, transposed, sums.as<float>());
      for (std::uint64_t k = 0; k < rows * c_.hidden; ++k) {
        detail::store(dx.as<T>()[k], sums.as<float const>()[k]);
      }
      auto* const dw = s.gradient(weight_).template as<T>();
      if (c_.tied) {  // the tensor is [hidden, features]: roles of x and d are exchanged
        tied_gradient(rows, x.as<T const>(), d, dw);
      } else {
        detail::weight_gradient(rows, c_.hidden, c_.outputs, x.as<T const>(), d, dw);
      }
    });
  }

 private:
  auto weight(scope const& s) const {
    return [w = s.value(weight_).template as<T const>(), this](std::uint64_t o, std::uint64_t i) {
      return detail::load(c_.tied ? w[i * c_.features + o] : w[o * c_.hidden + i]);
    };
  }
  void tied_gradient(std::uint64_t rows, T const* x, float const* d, T* dw) const {
    for (std::uint64_t k = 0; dw != nullptr && k < c_.hidden * c_.features; ++k) {
      float sum = 0;
      for (std::uint64_t r = 0; r < rows; ++r) {
        sum +=
            detail::load(x[r * c_.hidden + k / c_.features]) * d[r * c_.outputs + k % c_.features];
      }
      detail::store(dw[k], sum);
    }
  }

  mlp_config c_;
  std::uint64_t sequence_ = 0;
  parameter_ref weight_{};
};

/// T = float for jobs of fp32, bfloat16 for jobs of bf16, float16 for jobs of fp16.
template <class T>
auto make_mlp(mlp_config const& c) {
  return stack{mlp_input<T>(c), repeat(c.layers, mlp_layer<T>(c)), mlp_head<T>(c)};
}

}  // namespace protrain::test
