// SPDX-License-Identifier: Apache-2.0
// Ranks in one process when something goes wrong: other calls, missing ranks, aborts. Nothing hangs
// and every rank is told.

#include "protrain/comm/threads.hpp"

#include "protrain/comm/communicator.hpp"
#include "protrain/comm/error.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/core/arithmetic.hpp"
#include "protrain/core/philox.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "test/law/comm.hpp"
#include "test/support/contract.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace protrain::test {
namespace {

using namespace std::chrono_literals;
using comm::comm_error;
using comm::thread_group;

constexpr device::queue_ref reduce{.id = queue_id::reduce};
constexpr device::queue_ref gather{.id = queue_id::gather};

/// What a rank was told.
struct outcome {
  std::string what = "completed";
  std::uint32_t rank = ~std::uint32_t{0};
};

/// Runs body(communicator) on a thread per rank.
template <class Body>
std::vector<outcome> outcomes(thread_group& group, Body body) {
  std::vector<outcome> told(group.size());
  std::vector<std::thread> all;
  for (std::uint32_t r = 0; r < group.size(); ++r) {
    all.emplace_back([&, r] {
      comm::threads c(group, r);
      try {
        body(c);
      } catch (comm_error const& e) {
        told[r] = {e.what(), e.rank()};
      }
    });
  }
  for (std::thread& t : all) {
    t.join();
  }
  return told;
}

/// Every rank was told the same, about `rank`, and the text has all of `parts`.
void check_told(std::vector<outcome> const& told,
                std::uint32_t rank,
                std::vector<std::string> const& parts) {
  for (outcome const& each : told) {
    CHECK(each.what == told.front().what);
    CHECK(each.rank == rank);
  }
  for (std::string const& part : parts) {
    CAPTURE(told.front().what);
    CHECK(told.front().what.find(part) != std::string::npos);
  }
}

/// One good collective, to see that the group works.
void check_works(thread_group& group) {
  auto const told = outcomes(group, [](comm::threads& c) {
    if (c.sum(1) != c.size()) {
      throw comm_error(c.rank(), "wrong sum");
    }
  });
  for (outcome const& each : told) {
    CHECK(each.what == "completed");
  }
}

/// Data and staging of one call.
struct buffers {
  std::array<std::byte, 256> data{};
  std::array<std::byte, 256> staging{};
};

void reduce_scatter(comm::threads& c, std::uint64_t elements, dtype type) {
  buffers b;
  c.reduce_scatter_ordered(reduce, b.data.data(), b.staging.data(), elements, type);
}

}  // namespace

TEST_CASE("other sizes fail on every rank, with rank, queue and both sizes") {
  thread_group group(3);
  auto const told = outcomes(
      group, [](comm::threads& c) { reduce_scatter(c, c.rank() == 1 ? 6 : 3, dtype::f32); });
  check_told(
      told, 1, {"queue reduce", "collective 1", "rank 0", "3 elements", "rank 1", "6 elements"});
  group.reset();
  check_works(group);
}

TEST_CASE("other types and other operations fail on every rank") {
  thread_group group(2);
  check_told(outcomes(group,
                      [](comm::threads& c) {
                        reduce_scatter(c, 4, dtype::bf16);
                        reduce_scatter(c, 4, c.rank() == 0 ? dtype::bf16 : dtype::f16);
                      }),
             1,
             {"collective 2", "elements of bf16", "elements of fp16"});
  group.reset();
  check_told(outcomes(group,
                      [](comm::threads& c) {
                        std::array<std::byte, 16> data{};
                        c.rank() == 0 ? c.all_gather(reduce, data.data(), 8)
                                      : reduce_scatter(c, 8, dtype::f32);
                      }),
             1,
             {"all_gather of 8 bytes per rank", "reduce_scatter_ordered of 8 elements of fp32"});
  group.reset();
  check_works(group);
}

TEST_CASE("a rank that doesn't come is named, with queue and number, within the timeout") {
  thread_group group(4, 50ms);
  auto const start = std::chrono::steady_clock::now();
  auto const told = outcomes(group, [](comm::threads& c) {
    std::array<std::byte, 4> data{};
    c.all_gather(gather, data.data(), 1);
    if (c.rank() % 2 == 0) {
      c.all_gather(gather, data.data(), 1);
    }
  });
  CHECK(std::chrono::steady_clock::now() - start < 20s);
  CHECK(told[1].what == "completed");
  check_told({told[0], told[2]},
             1,
             {"queue gather", "collective 2", "1 bytes per rank", "rank 1, rank 3", "50 ms"});
}

TEST_CASE("a rank that comes too late is told at once, on any queue and between steps") {
  thread_group group(2, 20ms);
  auto const told = outcomes(group, [](comm::threads& c) {
    if (c.rank() == 1) {
      std::this_thread::sleep_for(100ms);
      c.sum(1);
    }
    reduce_scatter(c, 2, dtype::f32);
  });
  check_told(told, 1, {"queue reduce", "rank 1 did not come within 20 ms"});
  comm::threads late(group, 1);
  CHECK_THROWS_AS(late.all_gather(gather, nullptr, 0), comm_error);
  group.reset();
  check_works(group);
}

TEST_CASE("an abort wakes ranks that wait on other queues; the first reason counts") {
  thread_group group(3);
  auto const told = outcomes(group, [](comm::threads& c) {
    std::array<std::byte, 3> data{};
    if (c.rank() == 2) {
      std::this_thread::sleep_for(20ms);
      c.abort("no device memory");
      c.abort("something else");
      c.sum(0);
    }
    c.rank() == 0 ? c.all_gather(gather, data.data(), 1) : reduce_scatter(c, 3, dtype::f32);
  });
  check_told(told, 2, {"rank 2 aborted: no device memory"});
  group.reset();
  check_works(group);
}

TEST_CASE("a sum of more than 64 bits fails instead of wrapping") {
  thread_group group(2);
  auto const told = outcomes(group, [](comm::threads& c) { c.sum(~std::uint64_t{0}); });
  check_told(told, 1, {"64 bits"});
}

TEST_CASE("a failure inside a device's task comes out of synchronize, and the device goes on") {
  thread_group group(2, 50ms);
  auto const told = outcomes(group, [](comm::threads& c) {
    device::host_device device;
    auto const run = [](void* context, std::uint32_t, device::queue_ref q) {
      static_cast<comm::threads*>(context)->all_gather(q, nullptr, 0);
    };
    for (int i = 0; i < 2 - static_cast<int>(c.rank()); ++i) {
      device.submit(queue_id::gather, {}, {run, &c, 0});
    }
    device.synchronize();
  });
  CHECK(told[1].what == "completed");
  CHECK(told[0].what.find("collective 2") != std::string::npos);
}

TEST_CASE("serial devices with the same seed run collectives of several queues in one order") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    thread_group group(3, 2s);
    auto const told = outcomes(group, [seed](comm::threads& c) {
      device::serial_device device({.order = device::run_policy::random, .seed = seed});
      auto const run = [](void* context, std::uint32_t, device::queue_ref q) {
        static_cast<comm::threads*>(context)->all_gather(q, nullptr, 0);
      };
      for (int i = 0; i < 8; ++i) {
        device.submit(queue_id::gather, {}, {run, &c, 0});
        device.submit(queue_id::reduce, {}, {run, &c, 0});
      }
      device.synchronize();
    });
    for (outcome const& each : told) {
      CHECK(each.what == "completed");
    }
  }
}

/// Two queues of random collectives, as every rank draws them alike; true if all contents are right.
bool right_contents(comm::threads& c, queue_id on, std::uint64_t stream) {
  random_stream const random = initial_stream(5, stream);
  bool good = true;
  for (std::uint64_t k = 0; k < 200; ++k) {
    std::uint64_t const shard = random.word(2 * k) % 40;
    std::uint64_t const n = shard * c.size();
    watched<float> data(n);
    watched<float> staging(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      data.set(i, contribution<float>(c.rank(), i + k));
    }
    if (random.word(2 * k + 1) % 2 == 0) {
      c.all_gather({.id = on}, data.data(), shard * sizeof(float));
      for (std::uint64_t i = 0; i < n; ++i) {
        auto const owner = static_cast<std::uint32_t>(i / shard);
        good = good && same_bits(data.get(i), contribution<float>(owner, i + k));
      }
    } else {
      c.reduce_scatter_ordered({.id = on}, data.data(), staging.data(), n, dtype::f32);
      for (std::uint64_t i = c.rank() * shard; i < (c.rank() + 1) * shard; ++i) {
        good = good && same_bits(data.get(i), folded_by_numbers<float>(c.size(), i + k));
      }
    }
    good = good && data.whole() && staging.whole();
  }
  return good;
}

TEST_CASE("hundreds of random collectives on two queues at once have the right contents") {
  MESSAGE("seed 5");
  for (std::uint32_t const ranks : {2U, 3U, 5U}) {
    thread_group group(ranks);
    auto const told = outcomes(group, [](comm::threads& c) {
      bool others = false;
      std::thread other([&] { others = right_contents(c, queue_id::gather, 1); });
      bool const good = right_contents(c, queue_id::reduce, 2);
      other.join();
      if (!good || !others) {
        throw comm_error(c.rank(), "wrong contents");
      }
    });
    for (outcome const& each : told) {
      CHECK(each.what == "completed");
    }
  }
}

TEST_CASE("ranks of this host: all of them, unless the communicator knows better") {
  struct two_hosts : comm::self {
    std::uint32_t size() const noexcept { return 8; }
    std::uint32_t local_size() const noexcept { return 4; }
  };
  thread_group group(3);
  CHECK(comm::local_ranks(comm::threads(group, 1)) == 3);
  CHECK(comm::local_ranks(comm::self{}) == 1);
  CHECK(comm::local_ranks(two_hosts{}) == 4);
}

TEST_CASE("calls that no rank may make are contract errors") {
  throwing_contracts const armed;
  thread_group group(2);
  CHECK_THROWS_AS(thread_group(0), contract_broken);
  CHECK_THROWS_AS(comm::threads(group, 2), contract_broken);
  comm::threads c(group, 0);
  std::array<std::byte, 64> data{};
  CHECK_THROWS_AS(c.reduce_scatter_ordered(reduce, data.data(), data.data(), 3, dtype::f32),
                  contract_broken);
  CHECK_THROWS_AS(c.reduce_scatter_ordered(reduce, data.data(), data.data(), 4, dtype::i32),
                  contract_broken);
  CHECK_THROWS_AS(c.reduce_scatter_ordered(reduce, data.data(), nullptr, 4, dtype::f32),
                  contract_broken);
  CHECK_THROWS_AS(c.all_gather(gather, nullptr, 4), contract_broken);
}

}  // namespace protrain::test
