// SPDX-License-Identifier: Apache-2.0
// CPU work on several threads: the bits of per-tensor scalar loops, whatever the number of threads
// and the cut; and how many threads an engine takes.

#include "protrain/runtime/cpu_threads.hpp"

#include "protrain/block/scope.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/core/arithmetic.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/core/philox.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/processors.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/norm.hpp"
#include "protrain/optim/scale.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/runtime/kernels.hpp"
#include "test/support/differential.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace cpu_threads_test {

namespace {

using namespace protrain;

struct tensor {
  std::string name;
  std::uint64_t elements;
  bool decay;
};

/// Odd sizes, with and without decay side by side: worth 7 threads together.
std::vector<tensor> const first_tensors{{"a", 60'001, true},
                                        {"b", 37, false},
                                        {"c", 50'000, false},
                                        {"d", 128, true},
                                        {"e", 129, false}};
std::vector<tensor> const last_tensors{{"f", 90'003, true}, {"g", 40'000, false}};

/// Element i of a tensor's gradient in a micro-batch whose "g" is `g`.
template <class T>
T gradient_of(std::string const& name, std::uint64_t i, float g) {
  auto const k = static_cast<float>((i * 2654435761U + hash_name(name)) % 1021U);
  return narrow<T>(g * (k - 510.0F) * 0x1p-9F);
}

/// Gradients by pattern; one output element that means nothing.
template <class T>
class pattern_block {
 public:
  pattern_block(bool first, std::vector<tensor> tensors)
      : first_(first), tensors_(std::move(tensors)) {}

  void describe(block_builder& b) const {
    for (tensor const& t : tensors_) {
      b.parameter(t.name, {t.elements}, {.decay = t.decay});
    }
    b.batch("g", dtype::f32, {1});
    if (first_) {
      b.output({1}, dtype::f32);
    } else {
      b.input({1}, dtype::f32);
    }
    b.reads_input(false);
  }
  void forward(scope& s, tensor_view, tensor_view y) const {
    s.run([&] {
      if (first_) {
        *y.as<float>() = 0;
      } else {
        s.loss(0, 1);
      }
    });
  }
  void backward(scope& s, tensor_view, tensor_view, tensor_view dx) const {
    s.run([&] {
      float const g = *s.batch("g").as<float const>();
      for (std::uint32_t k = 0; k < tensors_.size(); ++k) {
        auto const to = s.gradient({k}).template elements_as<T>();
        for (std::uint64_t i = 0; i < to.size(); ++i) {
          to[i] = gradient_of<T>(tensors_[k].name, i, g);
        }
      }
      if (dx) {
        *dx.as<float>() = 0;
      }
    });
  }

 private:
  bool first_;
  std::vector<tensor> tensors_;
};

template <class T>
test::subject patterned(model::job const& job) {
  return test::make_subject(
      stack{pattern_block<T>(true, first_tensors), pattern_block<T>(false, last_tensors)},
      job,
      test::uniform_values(0.5F));
}

constexpr double rate = 1e-2;

/// Tensor by tensor and element by element, without vectors, threads, chunks or engine: contributions
/// of each step added in fp32, the norm, the clip factor, AdamW.
template <class T>
std::vector<std::vector<float>> by_scalar(test::subject const& s,
                                          std::vector<std::vector<float>> const& steps,
                                          std::vector<float>& norms) {
  std::vector<std::vector<float>> all;
  std::vector<std::vector<float>> m;
  std::vector<std::vector<float>> v;
  for (model::parameter const& p : s.table.parameters) {
    all.emplace_back(model::elements(p));
    s.load(p, all.back());
    m.emplace_back(all.back().size(), 0.0F);
    v.emplace_back(all.back().size(), 0.0F);
  }
  protrain::float_environment const environment;
  for (std::size_t t = 0; t < steps.size(); ++t) {
    std::vector<std::vector<float>> sums;
    optim::exact_sum squares;
    for (std::size_t k = 0; k < all.size(); ++k) {
      std::string const& name = k < first_tensors.size()
                                    ? first_tensors[k].name
                                    : last_tensors[k - first_tensors.size()].name;
      sums.emplace_back(all[k].size());
      for (std::uint64_t i = 0; i < all[k].size(); ++i) {
        float sum = widen(gradient_of<T>(name, i, steps[t][0]));
        for (std::size_t b = 1; b < steps[t].size(); ++b) {
          sum += widen(gradient_of<T>(name, i, steps[t][b]));
        }
        sums[k][i] = sum;
      }
      optim::add_squares(squares, sums[k].data(), sums[k].size(), optim::vectors::none);
    }
    norms.push_back(optim::norm(squares));
    float const scale = optim::gradient_scale(1, norms.back(), s.job().clip);
    for (std::size_t k = 0; k < all.size(); ++k) {
      auto const step = optim::adamw{}.prepare(
          rate, static_cast<std::int64_t>(t) + 1, s.table.parameters[k].decay);
      for (std::size_t i = 0; i < all[k].size(); ++i) {
        optim::adamw_element(step, scale, sums[k][i], all[k][i], m[k][i], v[k][i]);
      }
    }
  }
  return all;
}

/// The parameters after these steps of an engine, and its norms.
template <class Device>
std::vector<std::vector<float>> by_engine(Device& d,
                                          test::subject const& s,
                                          test::placement const& p,
                                          std::uint32_t threads,
                                          std::vector<std::vector<float>> const& steps,
                                          std::vector<float>& norms) {
  comm::self alone;
  runtime::engine engine(
      d, alone, s.table, test::parts_of(s, p), optim::adamw{}, {.threads = threads});
  CHECK(engine.threads() == (device::threaded_tasks<Device> ? threads : 1));
  engine.initialise(s.load);
  for (std::vector<float> const& each : steps) {
    auto const r = engine.step(test::constant_batch(each), {.learning_rate = rate}).get();
    norms.push_back(r.grad_norm);
  }
  std::vector<std::vector<float>> out;
  for (std::size_t i = 0; i < s.table.parameters.size(); ++i) {
    out.push_back(engine.read(make_id<parameter_id>(i)));
  }
  return out;
}

std::vector<std::uint32_t> flat(std::vector<std::vector<float>> const& all) {
  std::vector<std::uint32_t> out;
  for (auto const& each : all) {
    auto const bits = test::bits_of(each);
    out.insert(out.end(), bits.begin(), bits.end());
  }
  return out;
}

/// Everything on the host in one chunk, where threads cut it anywhere; in several; some on the
/// device, whose updates are not the cpu queue's.
std::vector<test::placement> const placements{
    {.persistent = {0}, .time = update::timing::before_next_use, .capacity = 300'000, .defer = 1},
    {.persistent = {0, 1}, .capacity = 70'000}};

template <class T>
void threads_dont_show(model::job const& job, std::vector<std::vector<float>> const& steps) {
  test::subject const s = patterned<T>(job);
  std::vector<float> norms;
  auto const want = flat(by_scalar<T>(s, steps, norms));
  for (test::placement const& p : placements) {
    for (std::uint32_t const threads : {1U, 2U, 3U, 7U}) {
      CAPTURE(threads);
      std::vector<float> seen;
      device::host_device d;
      CHECK(flat(by_engine(d, s, p, threads, steps, seen)) == want);
      CHECK(test::bits_of(seen) == test::bits_of(norms));
    }
    std::vector<float> seen;
    device::serial_device d({.order = device::run_policy::adversarial, .check_writes = true});
    CHECK(flat(by_engine(d, s, p, 7, steps, seen)) == want);
    CHECK(test::bits_of(seen) == test::bits_of(norms));
  }
}

TEST_CASE("threads, vectors and decay by tensor: the bits of a scalar loop over each tensor") {
  threads_dont_show<float>(test::job_of(dtype::f32, 1), {{1}, {-0.5F}});
  threads_dont_show<bfloat16>(test::job_of(dtype::bf16, 3, 0.05F),
                              {{1, 0.25F, 0x1p-9F}, {3, -1, 2}});
}

TEST_CASE(
    "CPU Adam on threads: a step with an inf or a nan is skipped, counted, and leaves no trace") {
  model::job job = test::job_of(dtype::bf16, 1, 1.0F);
  job.skip = true;
  test::subject const s = patterned<bfloat16>(job);
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  auto const train = [&](std::vector<float> const& gradients, std::uint64_t& skipped) {
    device::host_device d;
    comm::self alone;
    runtime::engine engine(
        d, alone, s.table, test::parts_of(s, placements[0]), optim::adamw{}, {.threads = 3});
    engine.initialise(s.load);
    std::vector<std::vector<float>> out;
    for (float const g : gradients) {
      auto const r = engine.step(test::constant_batch({g}), {.learning_rate = rate}).get();
      skipped += r.skipped ? 1U : 0U;
      CHECK(r.skipped == !r.finite);
    }
    for (std::size_t i = 0; i < s.table.parameters.size(); ++i) {
      out.push_back(engine.read(make_id<parameter_id>(i)));
    }
    return flat(out);
  };
  std::uint64_t with = 0;
  std::uint64_t without = 0;
  auto const stumbling = train({nan, 1, infinity, 2, -infinity}, with);
  CHECK(stumbling == train({1, 2}, without));
  CHECK(with == 3);
  CHECK(without == 0);
}

TEST_CASE("what of a tensor lies in a piece of its chunk") {
  using runtime::within;
  chunk::placed_tensor const t{parameter_id{4}, 256, 300};
  CHECK(within(t, {}) == t);
  CHECK(within(t, {0, 256}).elements == 0);
  CHECK(within(t, {640, 1024}).elements == 0);
  CHECK(within(t, {0, 384}) == chunk::placed_tensor{parameter_id{4}, 256, 128});
  CHECK(within(t, {384, 512}) == chunk::placed_tensor{parameter_id{4}, 384, 128});
  CHECK(within(t, {512, 1024}) == chunk::placed_tensor{parameter_id{4}, 512, 44});
}

TEST_CASE("an engine's threads: asked for, or a share of the processors, by ranks of this host") {
  struct eight_ranks : comm::self {
    std::uint32_t size() const noexcept { return 8; }
  };
  using device::host_device;
  std::uint32_t const all = device::processors_here().usable();
  CHECK(runtime::threads_of<host_device>({}, comm::self{}) == all);
  CHECK(runtime::threads_of<host_device>({.threads = 5}, comm::self{}) == 5);
  CHECK(runtime::threads_of<host_device>({}, eight_ranks{}) == std::max(1U, all / 8));
  CHECK(runtime::threads_of<host_device>({.local_ranks = 1}, eight_ranks{}) == all);
  CHECK(runtime::threads_of<host_device>({.local_ranks = 1'000'000}, comm::self{}) == 1);
  CHECK(runtime::threads_of<device::serial_device>({.threads = 5}, comm::self{}) == 1);
}

}  // namespace

}  // namespace cpu_threads_test
