// SPDX-License-Identifier: Apache-2.0
// Blocks that throw in the middle of training, for every update time: one rank goes on where
// nothing was updated and never applies an update twice or loses one; of several ranks all hear of
// it, in time, with the rank that failed.

#include "protrain/comm/error.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/runtime/error.hpp"
#include "test/support/contract.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/support/ranks.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace failures_test {

namespace {

using namespace protrain;
using test::contains;
using test::message_of;

test::subject tied_mlp(std::uint64_t ranks, float clip = 0) {
  model::job job = test::job_of(dtype::bf16, 3, clip);
  job.micro_batch = 2;
  job.sequence = 3;
  job.world = ranks;
  job.dropout = 0.1F;
  return test::make_subject(
      test::make_mlp<bfloat16>({.layers = 3, .tied = true}), job, test::uniform_values(0.4F));
}

runtime::plan_parts parts_of(test::subject const& s, test::update_time const& at) {
  return test::parts_of(s,
                        {.persistent = {0, 0, 1, 0},
                         .counts = {.swap = 1, .checkpoint = 1, .interval = 2},
                         .time = at.time,
                         .defer = at.defer,
                         .unroll = at.unroll});
}

/// Passes of block `block` in one step, recomputes among them.
std::uint64_t passes_of_step(test::subject s,
                             runtime::plan_parts const& parts,
                             std::size_t block,
                             bool backward) {
  test::trap meter;
  test::set_trap(s, block, backward, meter);
  device::serial_device d;
  comm::self alone;
  runtime::engine engine(d, alone, s.table, parts);
  test::train(engine, s, 1);
  return meter.calls;
}

struct tally {
  std::uint64_t went_on = 0;
  std::uint64_t refused = 0;
};

/// Steps until the trap snaps in step `fail_in`, tries again, and ends with 5 steps. If the engine
/// refuses, it starts anew.
template <class Device>
void fail_once(Device& d,
               test::subject const& trapped,
               runtime::plan_parts const& parts,
               test::outcome const& want,
               std::uint64_t fail_in,
               bool drop,
               tally& sum) {
  comm::self alone;
  {
    runtime::engine engine(d, alone, trapped.table, parts);
    engine.initialise(trapped.load);
    test::outcome seen;
    test::add_steps(seen, engine, trapped, 0, fail_in);
    if (drop) {
      // Nobody asks for the result: the failure shows in the next call.
      test::step_data const data(trapped, fail_in);
      std::string const why = message_of([&] {
        (void)engine.step(data.get(), {.learning_rate = 1});
        engine.flush();
      });
      CHECK(why == "the trap snapped");
    } else if (schedule::whole(parts.programs.front().part)) {
      test::step_data const data(trapped, fail_in);
      auto const late = engine.step(data.get(), {.learning_rate = 1});
      CHECK(message_of([&] { (void)late.get(); }) == "the trap snapped");
      CHECK(contains(message_of([&] { (void)late.get(); }), "failed: it has no result"));
    } else {
      // `step` waits for all programs but the last.
      test::step_data const data(trapped, fail_in);
      CHECK(message_of([&] { (void)engine.step(data.get(), {.learning_rate = 1}).get(); }) ==
            "the trap snapped");
    }
    std::string const again =
        message_of([&] { test::add_steps(seen, engine, trapped, fail_in, 1); });
    if (again.empty()) {
      ++sum.went_on;
      test::add_steps(seen, engine, trapped, fail_in + 1, 5 - fail_in - 1);
      test::add_parameters(seen, engine, trapped);
    } else {
      ++sum.refused;
      CHECK(contains(again, "the engine failed during an update"));
      CHECK(contains(message_of([&] { engine.flush(); }), "initialise it again"));
      CHECK(contains(message_of([&] { (void)engine.read({0}); }), "make a new one"));
      seen = test::train(engine, trapped, 5);
    }
    CHECK(test::difference(seen, want) == "");
    CHECK(test::memory_difference(engine) == "");
  }
  CHECK(test::live(d) == 0);
}

tally fail_everywhere(test::update_time const& at, bool backward, float clip) {
  test::subject const s = tied_mlp(1, clip);
  runtime::plan_parts const parts = parts_of(s, at);
  test::outcome const want = test::train_plain(s, 5);
  tally sum;
  test::turns turn;
  for (std::size_t block = 0; block < s.table.blocks.size(); ++block) {
    std::uint64_t const passes = passes_of_step(s, parts, block, backward);
    for (std::uint64_t const fail_in : {0U, 2U}) {
      for (std::uint64_t nth = 1; nth <= passes; ++nth) {
        CAPTURE(at.name);
        CAPTURE(backward);
        CAPTURE(block);
        CAPTURE(fail_in);
        CAPTURE(nth);
        auto const meet = [&](auto& device, bool drop) {
          test::subject trapped = s;
          test::trap trap;
          test::set_trap(trapped, block, backward, trap);
          trap.fail_at = fail_in * passes + nth;
          fail_once(device, trapped, parts, want, fail_in, drop, sum);
        };
        for (auto const order : {device::run_policy::in_order,
                                 device::run_policy::random,
                                 device::run_policy::adversarial}) {
          if (turn.next()) {
            device::serial_device d({.order = order, .seed = 100 * block + nth});
            meet(d, order == device::run_policy::random);
          }
        }
        if (turn.next()) {
          device::host_device host;
          meet(host, false);
        }
      }
    }
  }
  std::printf("%s, %s: %llu times the engine went on, %llu times it refused\n",
              at.name,
              backward ? "backward" : "forward",
              static_cast<unsigned long long>(sum.went_on),
              static_cast<unsigned long long>(sum.refused));
  return sum;
}

TEST_CASE("a block that throws in its forward pass, for every update time") {
  for (test::update_time const& at : test::update_times) {
    tally const t = fail_everywhere(at, false, 0);
    CHECK(t.went_on > 0);
    // Before any update of its own or of the step before an engine always goes on.
    if (at.time == update::timing::after_backward) {
      CHECK(t.refused == 0);
    }
  }
}

TEST_CASE("a block that throws in its backward pass, for every update time") {
  for (test::update_time const& at : test::update_times) {
    tally const t = fail_everywhere(at, true, 0);
    CHECK(t.went_on > 0);
    if (at.time == update::timing::after_backward) {
      CHECK(t.refused == 0);
    }
    if (at.time == update::timing::during_backward) {
      CHECK(t.refused > 0);
    }
  }
}

TEST_CASE("a job that needs the norm updates nothing before a pass can fail, but what was left") {
  for (test::update_time const& at : test::update_times) {
    if (at.time == update::timing::during_backward) {
      continue;
    }
    tally const t = fail_everywhere(at, true, 0.05F);
    CHECK(t.went_on > 0);
    if (at.defer == 0) {
      CHECK(t.refused == 0);
    }
  }
}

TEST_CASE("an evaluation that fails leaves training as it was") {
  for (test::update_time const& at : test::update_times) {
    CAPTURE(at.name);
    test::subject const s = tied_mlp(1);
    test::subject trapped = s;
    test::trap trap;
    test::set_trap(trapped, 2, false, trap);
    device::serial_device d({.order = device::run_policy::adversarial, .seed = 3});
    comm::self alone;
    runtime::engine engine(d, alone, trapped.table, parts_of(s, at));
    engine.initialise(s.load);
    test::outcome seen;
    test::add_steps(seen, engine, s, 0, 2);
    trap.fail_at = trap.calls + 2;
    test::step_data const data(s, 77);
    CHECK(message_of([&] { (void)engine.evaluate(data.get()); }) == "the trap snapped");
    float const loss = engine.evaluate(data.get());
    CHECK(loss == engine.evaluate(data.get()));
    test::add_steps(seen, engine, s, 2, 2);
    test::add_parameters(seen, engine, s);
    CHECK(test::difference(seen, test::train_plain(s, 4)) == "");
  }
}

// --- several ranks -------------------------------------------------------------------------------

/// What a rank of two met in place of its third step.
struct report {
  std::string what{};
  int culprit = -1;
  double seconds = 0;
  std::string after{};
  test::outcome anew{};
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Call>
void record(report& out, Call const& call) {
  auto const start = std::chrono::steady_clock::now();
  try {
    call();
  } catch (comm::comm_error const& e) {
    out.what = e.what();
    out.culprit = static_cast<int>(e.rank());
  } catch (std::exception const& e) {
    out.what = e.what();
  }
  out.seconds = seconds_since(start);
}

/// Two ranks, each with its own table: two good steps, then `third(engine, rank)`; after that the
/// group starts anew.
template <class MakeDevice, class Third>
std::vector<report> two_ranks(MakeDevice const& make_device,
                              std::array<test::subject, 2> const& s,
                              runtime::plan_parts const& parts,
                              std::chrono::milliseconds timeout,
                              Third const& third) {
  std::vector<report> out(2);
  comm::thread_group group(2, timeout);
  comm::thread_group pause(2);
  test::on_ranks(2, [&](std::uint32_t rank) {
    comm::threads mine(group, rank);
    comm::threads other(pause, rank);
    auto const device = make_device();
    runtime::engine engine(*device, mine, s[rank].table, parts);
    engine.initialise(s[rank].load);
    for (std::uint64_t step = 0; step < 2; ++step) {
      (void)engine.step(test::global_data(s[rank], step).of(rank), {}).get();
    }
    record(out[rank], [&] { third(engine, rank); });
    out[rank].after =
        message_of([&] { (void)engine.step(test::global_data(s[rank], 2).of(rank), {}).get(); });
    other.sum(0);
    if (rank == 0) {
      group.reset();
    }
    other.sum(0);
    out[rank].anew = test::train_part(
        engine,
        s[rank],
        3,
        test::between::nothing,
        [rank](test::global_data const& d) -> runtime::batch const& { return d.of(rank); });
  });
  return out;
}

template <class MakeDevice>
void check_failing_rank(MakeDevice const& make_device,
                        test::update_time const& at,
                        std::uint32_t failing,
                        std::size_t block,
                        bool backward) {
  test::subject const good = tied_mlp(2);
  runtime::plan_parts const parts = parts_of(good, at);
  std::array<test::subject, 2> s{good, good};
  test::trap trap;
  test::set_trap(s[failing], block, backward, trap);
  auto const reports = two_ranks(
      make_device, s, parts, std::chrono::seconds(20), [&](auto& engine, std::uint32_t rank) {
        if (rank == failing) {
          trap.fail_at = trap.calls + 2;
        }
        (void)engine.step(test::global_data(good, 2).of(rank), {}).get();
      });
  CHECK(reports[failing].what == "the trap snapped");
  report const& other = reports[1 - failing];
  CHECK(other.culprit == static_cast<int>(failing));
  CHECK(contains(other.what, "the trap snapped"));
  test::outcome const want = test::train_plain_ranks(good, 3, test::between::nothing);
  for (report const& r : reports) {
    CHECK(r.seconds < 10);
    CHECK(contains(r.after, "initialise it again"));
    CHECK(test::difference(r.anew, want) == "");
  }
}

/// In submission order: after a failure random orders of two ranks would no longer be the same.
auto const make_serial = [] { return std::make_unique<device::serial_device>(); };
auto const make_host = [] { return std::make_unique<device::host_device>(); };

TEST_CASE("a rank that fails makes the others throw at once, and they name it") {
  test::turns turn;
  for (test::update_time const& at : test::update_times) {
    for (std::uint32_t failing = 0; failing < 2; ++failing) {
      for (bool const backward : {false, true}) {
        for (std::size_t const block : {0U, 2U, 4U}) {
          CAPTURE(at.name);
          CAPTURE(failing);
          CAPTURE(backward);
          CAPTURE(block);
          if (turn.next()) {
            check_failing_rank(make_serial, at, failing, block, backward);
          }
          if (turn.next()) {
            check_failing_rank(make_host, at, failing, block, backward);
          }
        }
      }
    }
  }
}

TEST_CASE("ranks whose plans differ are told so before they exchange anything") {
  constexpr std::uint32_t ranks = 3;
  test::subject const s = tied_mlp(ranks);
  for (std::uint32_t other = 0; other < ranks; ++other) {
    for (unsigned const first : {0U, 1U, 2U}) {  // what the ranks call first
      CAPTURE(other);
      CAPTURE(first);
      std::vector<report> out(ranks);
      comm::thread_group group(ranks, std::chrono::seconds(20));
      test::on_ranks(ranks, [&](std::uint32_t rank) {
        comm::threads mine(group, rank);
        device::serial_device d;
        auto const& at = test::update_times[rank == other ? 1 : 0];
        runtime::engine engine(d, mine, s.table, parts_of(s, at));
        engine.initialise(s.load);
        record(out[rank], [&] {
          test::global_data const data(s, 0);
          if (first == 0) {
            (void)engine.step(data.of(rank), {}).get();
          } else if (first == 1) {
            (void)engine.evaluate(data.of(rank));
          } else {
            (void)engine.read(make_id<parameter_id>(0));
          }
        });
      });
      for (report const& r : out) {
        CHECK(contains(r.what, "the ranks' plans differ"));
        CHECK(r.seconds < 10);
      }
    }
  }
}

TEST_CASE("a batch that is bad on one rank fails on both, and names the rank") {
  test::subject const s = tied_mlp(2);
  for (test::update_time const& at : test::update_times) {
    for (bool const evaluates : {false, true}) {
      CAPTURE(at.name);
      CAPTURE(evaluates);
      auto const reports =
          two_ranks(make_serial,
                    {s, s},
                    parts_of(s, at),
                    std::chrono::seconds(20),
                    [&](auto& engine, std::uint32_t rank) {
                      test::global_data const good(s, 2);
                      runtime::batch bad;
                      bad.add("features", good.of(1).tensors()[0].data, 12).targets(1);
                      runtime::batch const& mine = rank == 1 ? bad : good.of(0);
                      if (evaluates) {
                        (void)engine.evaluate(mine);
                      } else {
                        (void)engine.step(mine, {}).get();
                      }
                    });
      CHECK(contains(reports[1].what, "features"));
      CHECK(reports[0].culprit == 1);
      CHECK(contains(reports[0].what, "features"));
      test::outcome const want = test::train_plain_ranks(s, 3, test::between::nothing);
      for (report const& r : reports) {
        CHECK(r.seconds < 10);
        CHECK(contains(r.after, "initialise it again"));
        CHECK(test::difference(r.anew, want) == "");
      }
    }
  }
}

TEST_CASE("a failure that nobody asked about shows in initialise, on both ranks at once") {
  for (test::update_time const& at : test::update_times) {
    CAPTURE(at.name);
    test::subject const good = tied_mlp(2);
    std::array<test::subject, 2> s{good, good};
    test::trap trap;
    test::set_trap(s[0], 2, true, trap);
    auto const reports = two_ranks(make_host,
                                   s,
                                   parts_of(good, at),
                                   std::chrono::seconds(20),
                                   [&](auto& engine, std::uint32_t rank) {
                                     if (rank == 0) {
                                       trap.fail_at = trap.calls + 1;
                                     }
                                     (void)engine.step(test::global_data(good, 2).of(rank), {});
                                     engine.initialise(good.load);
                                   });
    CHECK(reports[0].what == "the trap snapped");
    CHECK(reports[1].culprit == 0);
    test::outcome const want = test::train_plain_ranks(good, 3, test::between::nothing);
    for (report const& r : reports) {
      CHECK(r.seconds < 10);
      CHECK(contains(r.after, "initialise it again"));
      CHECK(test::difference(r.anew, want) == "");
    }
  }
}

TEST_CASE("a parameter that the model doesn't have is the caller's bug") {
  test::subject const s = tied_mlp(1);
  device::serial_device d;
  comm::self alone;
  runtime::engine engine(d, alone, s.table, parts_of(s, test::update_times[0]));
  test::throwing_contracts const throwing;
  auto const none = make_id<parameter_id>(s.table.parameters.size());
  CHECK_THROWS_AS((void)engine.read(none), test::contract_broken);
}

TEST_CASE("a rank that doesn't come is named when the time is over") {
  test::subject const s = tied_mlp(2);
  for (test::update_time const& at : test::update_times) {
    CAPTURE(at.name);
    auto const reports = two_ranks(make_serial,
                                   {s, s},
                                   parts_of(s, at),
                                   std::chrono::milliseconds(500),
                                   [&](auto& engine, std::uint32_t rank) {
                                     if (rank == 0) {
                                       (void)engine.step(test::global_data(s, 2).of(0), {}).get();
                                     } else {
                                       std::this_thread::sleep_for(std::chrono::seconds(1));
                                     }
                                   });
    CHECK(reports[0].culprit == 1);
    CHECK(contains(reports[0].what, "rank 1 did not come within 500 ms"));
    CHECK(reports[0].seconds < 10);
    CHECK(contains(reports[1].after, "rank 1 did not come"));
  }
}

}  // namespace

}  // namespace failures_test
