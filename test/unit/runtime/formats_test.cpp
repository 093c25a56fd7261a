// SPDX-License-Identifier: Apache-2.0
// Jobs whose fp32 master lies beside the value, in bf16 and fp16: wherever their state lives, they
// have the bits of the plain loop.

#include "protrain/comm/self.hpp"
#include "protrain/core/dtype.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/runtime/engine.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace formats_test {

namespace {

using namespace protrain;

model::job beside(dtype type, std::uint64_t accumulate, float clip) {
  return {.micro_batch = 2,
          .sequence = 3,
          .accumulate = accumulate,
          .type = type,
          .state = model::state_format::separate_master,
          .clip = clip,
          .dropout = 0.1F};
}

test::subject half_mlp(model::job const& job) {
  test::mlp_config const small{.layers = 2, .tied = true};
  return job.type == dtype::f16
             ? test::make_subject(test::make_mlp<float16>(small), job, test::uniform_values(0.4F))
             : test::make_subject(test::make_mlp<bfloat16>(small), job, test::uniform_values(0.4F));
}

}  // namespace

TEST_CASE("separate masters in bf16 and fp16 have the plain loop's bits under every placement") {
  for (dtype const type : {dtype::bf16, dtype::f16}) {
    for (std::uint64_t const accumulate : {1U, 3U}) {
      for (float const clip : {0.0F, 0.05F}) {
        test::subject const s = half_mlp(beside(type, accumulate, clip));
        test::outcome const want = test::train_plain(s, 4);
        CHECK(std::bit_cast<float>(want.losses[3]) < std::bit_cast<float>(want.losses[0]));
        for (test::placement const& p : test::placements()) {
          device::serial_device d({.order = device::run_policy::adversarial, .check_writes = true});
          comm::self alone;
          runtime::engine engine(d, alone, s.table, test::parts_of(s, p));
          CHECK(test::difference(test::train(engine, s, 4), want) == "");
        }
      }
    }
  }
}

TEST_CASE("a loss scale is undone exactly, and saves what fp16 would lose") {
  model::job job = beside(dtype::f16, 2, 0.05F);
  auto const scaled = [&](float scale) {
    job.loss_scale = scale;
    test::subject const s = half_mlp(job);
    test::outcome const want = test::train_plain(s, 3);
    for (test::placement const& p : test::placements()) {
      device::serial_device d;
      comm::self alone;
      runtime::engine engine(d, alone, s.table, test::parts_of(s, p));
      CHECK(test::difference(test::train(engine, s, 3), want) == "");
    }
    return want;
  };
  test::outcome const plain = scaled(1);
  test::outcome const large = scaled(0x1p11F);
  // Far from both ends of fp16 another power of two changes nothing.
  CHECK(test::difference(scaled(0x1p12F), large) == "");
  // Norms are those of the gradients without the scale.
  for (std::size_t i = 0; i < large.norms.size(); ++i) {
    CHECK(std::bit_cast<float>(large.norms[i]) ==
          doctest::Approx(std::bit_cast<float>(plain.norms[i])).epsilon(0.01));
  }
  // So small a scale that every gradient underflows.
  CHECK(scaled(0x1p-40F).norms.front() == 0);
}

TEST_CASE("an fp16 job that skips survives a loss scale that overflows") {
  model::job job = beside(dtype::f16, 1, 0);
  job.skip = true;
  job.loss_scale = 0x1p60F;
  test::subject const s = half_mlp(job);
  for (test::placement const& p : test::placements()) {
    device::serial_device d;
    comm::self alone;
    runtime::engine engine(d, alone, s.table, test::parts_of(s, p));
    engine.initialise(s.load);
    test::outcome before;
    test::add_parameters(before, engine, s);
    test::outcome after;
    test::add_steps(after, engine, s, 0, 2);
    test::add_parameters(after, engine, s);
    CHECK(after.parameters == before.parameters);
    CHECK(std::isnan(std::bit_cast<float>(after.norms[0])));
    CHECK(std::isfinite(std::bit_cast<float>(after.losses[1])));
  }
}

}  // namespace formats_test
