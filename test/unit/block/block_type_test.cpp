// SPDX-License-Identifier: Apache-2.0
// A trainer with one struct of pointers and loops over layers becomes a stack of lambda blocks
// without touching its kernels.

#include "protrain/block/pointers.hpp"
#include "protrain/block/standalone.hpp"
#include "test/unit/block/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace block_type_test {

namespace {

using protrain::block_builder;
using protrain::dtype;
using protrain::make_block;
using protrain::make_id;
using protrain::parameter_id;
using protrain::repeat;
using protrain::scope;
using protrain::stack;
using protrain::tensor_view;
using protrain::block::standalone;
using protrain::block::table;

constexpr std::uint64_t n = 5;

/// The kernels as they were: raw pointers, and a layer that decides something.
void scale_forward(float* y, float const* x, float const* w, std::uint32_t layer) {
  for (std::uint64_t i = 0; i < n; ++i) {
    y[i] = x[i] * w[i] + static_cast<float>(layer);
  }
}
void scale_backward(float* dx, float* dw, float const* x, float const* w, float const* dy) {
  for (std::uint64_t i = 0; i < n; ++i) {
    dx[i] = dy[i] * w[i];
    dw[i] += dy[i] * x[i];
  }
}

enum layer_parameters : std::uint32_t { weight };

auto make_model(std::uint32_t layers) {
  auto first = make_block(
      [](block_builder& b) {
        b.parameter("x0", {n});
        b.output({n});
      },
      [](scope& s, tensor_view, tensor_view y) {
        s.run([&] { std::copy_n(s.value({0}).as<float const>(), n, y.as<float>()); });
      },
      [](scope& s, tensor_view, tensor_view dy, tensor_view) {
        s.run([&] { std::copy_n(dy.as<float const>(), n, s.gradient({0}).as<float>()); });
      });
  auto layer = make_block(
      [](block_builder& b) {
        b.parameter("w", {n});
        b.input({n});
        b.output({n});
      },
      [](scope& s, tensor_view x, tensor_view y) {
        s.run([&] {
          scale_forward(
              y.as<float>(), x.as<float const>(), s.value({weight}).as<float const>(), s.layer());
        });
      },
      [](scope& s, tensor_view x, tensor_view dy, tensor_view dx) {
        s.run([&] {
          scale_backward(dx.as<float>(),
                         s.gradient({weight}).as<float>(),
                         x.as<float const>(),
                         s.value({weight}).as<float const>(),
                         dy.as<float const>());
        });
      });
  auto last = make_block(
      [](block_builder& b) {
        b.input({n});
        b.reads_input(false);
      },
      [](scope& s, tensor_view x, tensor_view) {
        s.run([&] {
          for (float const v : x.elements_as<float const>()) {
            s.loss(0, v);
          }
        });
      },
      [](scope& s, tensor_view x, tensor_view, tensor_view dx) {
        CHECK_FALSE(static_cast<bool>(x));
        s.run([&] { std::fill_n(dx.as<float>(), n, s.loss_scale()); });
      });
  return stack{first, repeat(layers, layer, "layers"), last};
}

}  // namespace

TEST_CASE("lambdas over a layer index compute what the loop computed") {
  auto const model = make_model(3);
  protrain::model::job const job{};
  table const t = model.entries(job);
  standalone owner(t, job, {.fill = 0xFF});
  std::vector<std::vector<float>> w;
  for (std::size_t p = 0; p < t.parameters.size(); ++p) {
    tensor_view const v = owner.value(make_id<parameter_id>(p));
    for (std::uint64_t i = 0; i < n; ++i) {
      v.as<float>()[i] = static_cast<float>(i + 2 * p) / 4 - 1;
    }
    w.emplace_back(v.as<float>(), v.as<float>() + n);
  }
  owner.begin({.loss_scale = 0.5F});
  owner.forward();
  owner.backward();

  std::vector<std::vector<float>> x{w[0]};
  for (std::uint32_t l = 0; l < 3; ++l) {
    x.emplace_back(n);
    scale_forward(x[l + 1].data(), x[l].data(), w[l + 1].data(), l);
  }
  float loss = 0;
  for (float const v : x[3]) {
    loss += v;
  }
  CHECK(owner.losses()[0] == loss);
  std::vector<float> dy(n, 0.5F);
  for (std::uint32_t l = 3; l > 0; --l) {
    std::vector<float> dx(n);
    std::vector<float> dw(n);
    scale_backward(dx.data(), dw.data(), x[l - 1].data(), w[l].data(), dy.data());
    tensor_view const got = owner.contribution(protrain::block_id{l}, {weight});
    CHECK(std::vector<float>(got.as<float>(), got.as<float>() + n) == dw);
    dy = dx;
  }
  tensor_view const got = owner.contribution(protrain::block_id{0}, {0});
  CHECK(std::vector<float>(got.as<float>(), got.as<float>() + n) == dy);
}

TEST_CASE("the three functions may take the layer first, so that a trainer's own struct serves") {
  // As in a hand-written trainer: one struct of pointers for all layers, filled as passes come.
  struct {
    std::uint64_t widths[3] = {2, 4, 3};
    float const* w[3] = {};
  } network;
  std::vector<std::uint32_t> order;
  auto const layer = make_block(
      [&](std::uint32_t l, block_builder& b) {
        b.parameter("w", {network.widths[l]});
        if (l > 0) {
          b.input({network.widths[l - 1]});
        }
        if (l < 2) {
          b.output({network.widths[l]});
        }
      },
      [&](std::uint32_t l, scope& s, tensor_view x, tensor_view) {
        s.run([&] {
          network.w[l] = s.value({weight}).as<float const>();
          CHECK(x.elements() == (l == 0 ? 0 : network.widths[l - 1]));
          order.push_back(l);
        });
      },
      [&](std::uint32_t l, scope& s, tensor_view, tensor_view, tensor_view) {
        s.run([&] {
          CHECK(s.gradient({weight}).elements() == network.widths[l]);
          order.push_back(10 + l);
        });
      });
  stack const model{repeat(3, layer)};
  table const t = model.entries({});
  CHECK(t.parameters[1].name.view() == "h.1.w");
  CHECK(t.blocks[0].shape != t.blocks[1].shape);
  standalone owner(t, {});
  owner.forward();
  owner.backward();
  CHECK(order == std::vector<std::uint32_t>{0, 1, 2, 12, 11, 10});
  CHECK(network.w[2] == owner.value(make_id<parameter_id>(2)).as<float>());
}

TEST_CASE("parameters as a struct of pointers, in the order of their declaration") {
  struct weights {
    float* w;
    double* scale;
    float* bias;
  };
  auto const lone = make_block(
      [](block_builder& b) {
        b.parameter("w", {3});
        b.parameter("scale", {}, {.type = dtype::f64});
        b.parameter("bias", {4}, {.trainable = false});
      },
      [](scope& s, tensor_view, tensor_view) {
        auto const w = protrain::values_as<weights>(s);
        CHECK(w.w == s.value({0}).data);
        CHECK(w.scale == s.value({1}).data);
        CHECK(w.bias == s.value({2}).data);
        CHECK(protrain::values_as<float*>(s) == w.w);
      },
      [](scope& s, tensor_view, tensor_view, tensor_view) {
        auto const d = protrain::gradients_as<weights>(s);
        CHECK(d.w == s.gradient({0}).data);
        CHECK(d.scale == s.gradient({1}).data);
        CHECK(d.bias == nullptr);
      });
  stack const model{lone};
  table const t = model.entries({});
  standalone owner(t, {});
  owner.forward();
  owner.backward();
  CHECK(owner.value(make_id<parameter_id>(0)).data != nullptr);
}

TEST_CASE("a lambda block may keep its handles outside") {
  protrain::parameter_ref second{};
  auto const lone = make_block(
      [&](block_builder& b) {
        b.parameter("a", {1});
        second = b.parameter("b", {2});
      },
      [&](scope& s, tensor_view, tensor_view) { CHECK(s.value(second).elements() == 2); },
      [](scope&, tensor_view, tensor_view, tensor_view) {});
  stack const model{lone};
  table const t = model.entries({});
  standalone owner(t, {});
  owner.forward();
  CHECK(second.index == 1);
}

}  // namespace block_type_test
