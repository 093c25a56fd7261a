// SPDX-License-Identifier: Apache-2.0
// Loops in one fixed order, as simple as can be.

#include "examples/adopt/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

namespace adopt {
namespace {

constexpr std::string_view text =
    "A trainer that grew by hand has one struct of pointers, a loop over layers, and kernels that "
    "take both. It owns all of its memory, so that what it can train is what fits. Some of that "
    "memory is read once in a step, and waits for the rest of it; some is read twice, far apart. "
    "Whoever knows when each of them is read next may lend it to others in between. ";

float activation(float v) { return v / (1 + std::abs(v)); }
float activation_slope(float v) {
  float const root = 1 / (1 + std::abs(v));
  return root * root;
}

double power(double base, int n) {
  double out = 1;
  for (; n > 0; n /= 2) {
    out = n % 2 != 0 ? out * base : out;
    base *= base;
  }
  return out;
}

/// What a moment is stored as: no denormals.
float stored(float x) { return std::abs(x) < 0x1p-126F ? 0 : x; }

/// A row of the table of parameters, in the order of memory.
struct parameter {
  std::string name;
  std::size_t first;  // element
  std::size_t size;
  bool decay;
};

std::vector<parameter> parameters() {
  std::vector<parameter> out;
  std::size_t first = 0;
  auto const add = [&](std::string name, std::size_t n, bool decay) {
    out.push_back({std::move(name), first, n, decay});
    first += n;
  };
  add("embedding", V * E, true);
  for (std::size_t l = 0; l < L; ++l) {
    std::string const prefix = "h." + std::to_string(l) + ".";
    add(prefix + "w1", H * C, true);
    add(prefix + "b1", H, false);
    add(prefix + "w2", C * H, true);
    add(prefix + "b2", C, false);
  }
  add("head", V * C, true);
  return out;
}

/// Every addition is an fma, so that no compiler setting matters.
void adamw(float* p,
           float const* g,
           float* m,
           float* v,
           std::size_t n,
           double learning_rate,
           int t,
           bool decay) {
  constexpr double beta1 = 0.9;
  constexpr double beta2 = 0.999;
  auto const a = static_cast<float>(learning_rate / (1 - power(beta1, t)));
  auto const r = static_cast<float>(1 / std::sqrt(1 - power(beta2, t)));
  auto const k = decay ? static_cast<float>(std::fma(-learning_rate, 0.01, 1.0)) : 1.0F;
  for (std::size_t i = 0; i < n; ++i) {
    float const m1 =
        std::fma(static_cast<float>(beta1), m[i], static_cast<float>(1 - beta1) * g[i]);
    float const v1 =
        std::fma(static_cast<float>(beta2), v[i], static_cast<float>(1 - beta2) * g[i] * g[i]);
    float const d = std::fma(std::sqrt(v1), r, 1e-8F);
    p[i] = std::fma(-a, m1 / d, k * p[i]);
    m[i] = stored(m1);
    v[i] = stored(v1);
  }
}

}  // namespace

memory::memory() {
  std::size_t const all = parameters().back().first + parameters().back().size;
  point(values, values_ = std::vector<float>(all));
  point(gradients, gradients_ = std::vector<float>(all));
  first_.resize(all);
  second_.resize(all);
  for (parameter const& q : parameters()) {
    initialise(q.name, std::span(values_).subspan(q.first, q.size));
  }
  for (float*& to : x) {
    to = take(B * C);
  }
  for (float*& to : h) {
    to = take(B * H);
  }
  p = take(B * V);
  losses = take(B);
  dx = take(B * C);
  dy = take(B * C);
}

float* memory::take(std::size_t n) {
  others_.emplace_back(n);
  return others_.back().data();
}

void memory::point(network& to, std::vector<float>& at) {
  auto const all = parameters();
  auto const pointer = [&](std::size_t i) { return at.data() + all[i].first; };
  to.embedding = pointer(0);
  for (std::size_t l = 0; l < L; ++l) {
    to.layers[l] = {pointer(4 * l + 1), pointer(4 * l + 2), pointer(4 * l + 3), pointer(4 * l + 4)};
  }
  to.head = pointer(4 * L + 1);
}

std::size_t memory::bytes() const {
  std::size_t floats = 4 * values_.size();
  for (auto const& other : others_) {
    floats += other.size();
  }
  return floats * sizeof(float);
}

void memory::begin_step() {
  std::ranges::fill(gradients_, 0.0F);
  std::fill_n(losses, B, 0.0F);
}

void memory::update(double learning_rate, int t) {
  for (parameter const& q : parameters()) {
    adamw(values_.data() + q.first,
          gradients_.data() + q.first,
          first_.data() + q.first,
          second_.data() + q.first,
          q.size,
          learning_rate,
          t,
          q.decay);
  }
}

void initialise(std::string_view name, std::span<float> values) {
  std::uint32_t state = 2166136261U;
  for (char const c : name) {
    state = (state ^ static_cast<std::uint8_t>(c)) * 16777619U;
  }
  bool const bias = name.ends_with("b1") || name.ends_with("b2");
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = bias ? 0 : (static_cast<float>(state >> 8U) * 0x1p-23F - 1) * 0.1F;
  }
}

void load_batch(int step, std::uint8_t* context, std::uint8_t* next) {
  for (std::size_t b = 0; b < B; ++b) {
    std::size_t const at = (static_cast<std::size_t>(step) * 37 + b * 11) % (text.size() - K);
    std::copy_n(text.data() + at, K, context + b * K);
    next[b] = static_cast<std::uint8_t>(text[at + K]);
  }
}

void embedding_forward(float const* embedding, std::uint8_t const* context, float* x) {
  for (std::size_t i = 0; i < B * K; ++i) {
    std::copy_n(embedding + context[i] * E, E, x + i * E);
  }
}

void embedding_backward(float* d_embedding, std::uint8_t const* context, float const* dx) {
  for (std::size_t i = 0; i < B * K; ++i) {
    for (std::size_t e = 0; e < E; ++e) {
      d_embedding[context[i] * E + e] += dx[i * E + e];
    }
  }
}

void layer_forward(layer_tensors const& w, float const* x, float* h, float* y) {
  for (std::size_t b = 0; b < B; ++b, x += C, h += H, y += C) {
    for (std::size_t o = 0; o < H; ++o) {
      h[o] = std::inner_product(x, x + C, w.w1 + o * C, w.b1[o]);
    }
    for (std::size_t o = 0; o < C; ++o) {
      float sum = w.b2[o];
      for (std::size_t i = 0; i < H; ++i) {
        sum += activation(h[i]) * w.w2[o * H + i];
      }
      y[o] = x[o] + sum;
    }
  }
}

void layer_backward(layer_tensors const& w,
                    layer_tensors const& d,
                    float const* x,
                    float const* h,
                    float const* dy,
                    float* dx) {
  for (std::size_t b = 0; b < B; ++b, x += C, h += H, dy += C, dx += C) {
    float dh[H] = {};
    for (std::size_t o = 0; o < C; ++o) {
      d.b2[o] += dy[o];
      for (std::size_t i = 0; i < H; ++i) {
        d.w2[o * H + i] += dy[o] * activation(h[i]);
        dh[i] += dy[o] * w.w2[o * H + i];
      }
    }
    std::copy_n(dy, C, dx);
    for (std::size_t o = 0; o < H; ++o) {
      float const g = dh[o] * activation_slope(h[o]);
      d.b1[o] += g;
      for (std::size_t i = 0; i < C; ++i) {
        d.w1[o * C + i] += g * x[i];
        dx[i] += g * w.w1[o * C + i];
      }
    }
  }
}

void head_forward(
    float const* head, float const* x, std::uint8_t const* next, float* p, float* losses) {
  for (std::size_t b = 0; b < B; ++b, x += C, p += V) {
    for (std::size_t v = 0; v < V; ++v) {
      p[v] = std::inner_product(x, x + C, head + v * C, 0.0F);
    }
    float const most = *std::max_element(p, p + V);
    float sum = 0;
    for (std::size_t v = 0; v < V; ++v) {
      p[v] = std::exp(p[v] - most);
      sum += p[v];
    }
    for (std::size_t v = 0; v < V; ++v) {
      p[v] /= sum;
    }
    if (losses != nullptr) {
      losses[b] -= std::log(p[next[b]]);
    }
  }
}

void head_backward(float const* head,
                   float* d_head,
                   float const* x,
                   std::uint8_t const* next,
                   float const* p,
                   float scale,
                   float* dx) {
  for (std::size_t b = 0; b < B; ++b, x += C, p += V, dx += C) {
    std::fill_n(dx, C, 0.0F);
    for (std::size_t v = 0; v < V; ++v) {
      float const g = (p[v] - (v == next[b] ? 1.0F : 0.0F)) * scale;
      for (std::size_t c = 0; c < C; ++c) {
        d_head[v * C + c] += g * x[c];
        dx[c] += g * head[v * C + c];
      }
    }
  }
}

float mean(float const* losses) {
  return static_cast<float>(std::accumulate(losses, losses + B, 0.0) / double{B});
}

}  // namespace adopt
