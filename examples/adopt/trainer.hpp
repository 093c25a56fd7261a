// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a hand-written trainer is made of: sizes, one struct of pointers, kernels, an optimizer, data.
// A language model on bytes: 8 bytes of context, residual layers, the next byte. No protrain here.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace adopt {

inline constexpr std::size_t B = 32;     // samples in a step
inline constexpr std::size_t K = 8;      // bytes of context
inline constexpr std::size_t E = 8;      // channels per byte
inline constexpr std::size_t C = K * E;  // channels between layers
inline constexpr std::size_t H = 4 * C;  // channels inside a layer
inline constexpr std::size_t L = 8;      // layers
inline constexpr std::size_t V = 256;    // bytes there are

struct layer_tensors {
  float* w1;  // [H, C]
  float* b1;  // [H]
  float* w2;  // [C, H]
  float* b2;  // [C]
};

/// Pointers to all parameters, or to a number for each of them.
struct network {
  float* embedding;  // [V, E]
  layer_tensors layers[L];
  float* head;  // [V, C]
};

/// All memory of a trainer that keeps everything.
class memory {
 public:
  network values{};
  network gradients{};
  float* x[L + 1] = {};  // between layers
  float* h[L] = {};      // inside them
  float* p = nullptr;    // probabilities
  float* losses = nullptr;
  float* dx = nullptr;
  float* dy = nullptr;

  memory();
  std::size_t bytes() const;
  /// Gradients and losses become zero.
  void begin_step();
  /// AdamW on all parameters; `t` counts steps from 1.
  void update(double learning_rate, int t);

 private:
  float* take(std::size_t n);
  void point(network& to, std::vector<float>& at);

  std::vector<float> values_, gradients_, first_, second_;
  std::vector<std::vector<float>> others_;
};

/// Initial values of a parameter, by its name.
void initialise(std::string_view name, std::span<float> values);

/// The samples of a step from a text that is built in.
void load_batch(int step, std::uint8_t* context, std::uint8_t* next);

void embedding_forward(float const* embedding, std::uint8_t const* context, float* x);
void embedding_backward(float* d_embedding, std::uint8_t const* context, float const* dx);
/// y = x + w2 f(h) + b2 with h = w1 x + b1, which backward reads.
void layer_forward(layer_tensors const& w, float const* x, float* h, float* y);
/// Adds to the gradients in `d`.
void layer_backward(layer_tensors const& w,
                    layer_tensors const& d,
                    float const* x,
                    float const* h,
                    float const* dy,
                    float* dx);
/// Adds each sample's loss, unless `losses` is null, and keeps the probabilities.
void head_forward(
    float const* head, float const* x, std::uint8_t const* next, float* p, float* losses);
void head_backward(float const* head,
                   float* d_head,
                   float const* x,
                   std::uint8_t const* next,
                   float const* p,
                   float scale,
                   float* dx);

/// Of all losses of a step.
float mean(float const* losses);

}  // namespace adopt
