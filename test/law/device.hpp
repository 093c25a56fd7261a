// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of a device, a function check_<law> and a test case each. A fixture F has `F::make()`,
// which returns a device; instantiate with PROTRAIN_DEVICE_LAWS(F...). Effects are seen through
// copies, so that any device can be tested.

#include "protrain/core/math.hpp"
#include "protrain/core/philox.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/device/device.hpp"
#include "protrain/device/error.hpp"
#include "test/law/device_tools.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace protrain::test {

/// Devices that ship count what their queues did.
template <class D>
concept counts_work = requires(D const& d, queue_id q) { d.work_of(q); };

template <class D>
void check_work(D const& d, queue_id q, device::work_counts const& want) {
  if constexpr (counts_work<D>) {
    CHECK(d.work_of(q) == want);
  }
}

template <class F>
void check_device_order() {
  auto d = F::make();
  d.reserve(space::host, 64 << 10);
  d.reserve(space::device, 4096);
  d.lease(space::device, 0, 4, category::scratch);
  {
    cells in(d, 0, 1000);
    cells out(d, 8192, 1000);
    in.fill([](std::size_t i) { return static_cast<std::uint32_t>(7 * i + 1); });
    issuer issue(d);
    for (queue_id const q : all_queues) {
      out.fill([](std::size_t) { return 0; });
      for (std::size_t i = 0; i < 1000; ++i) {
        issue.copy(q, space::device, 0, space::host, in.at(i), 4);
        issue.copy(q, space::host, out.at(i), space::device, 0, 4);
      }
      d.synchronize();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < 1000; ++i) {
        wrong += out[i] != 7 * i + 1 ? 1U : 0U;
      }
      CHECK(wrong == 0);
      check_work(d, q, {2000, 2000, 8000});
    }
  }
  d.release(space::device, 0, 4, category::scratch);
}

// Two slots: h2d may overwrite one only after compute has read it, and so on down the line.
template <class F>
void check_device_events() {
  constexpr std::size_t n = 300;
  auto d = F::make();
  d.reserve(space::host, 16 << 10);
  d.reserve(space::device, 4096);
  cells in(d, 0, n);
  cells out(d, 8192, n);
  in.fill([](std::size_t i) { return static_cast<std::uint32_t>(i * i + 3); });
  issuer issue(d);
  std::vector<device::event> read(n);
  std::vector<device::event> drained(n);
  for (std::size_t i = 0; i < n; ++i) {
    std::uint64_t const up = 256 * (i % 2);
    std::uint64_t const down = 512 + 256 * (i % 2);
    if (i >= 2) {
      d.release(space::device, up, 4, category::parameter_buffers);
      d.release(space::device, down, 4, category::gradients);
      d.wait(queue_id::h2d, read[i - 2]);
      d.wait(queue_id::compute, drained[i - 2]);
    }
    d.lease(space::device, up, 4, category::parameter_buffers);
    d.lease(space::device, down, 4, category::gradients);
    d.settle();
    issue.copy(queue_id::h2d, space::device, up, space::host, in.at(i), 4);
    issue.after(queue_id::compute, queue_id::h2d);
    issue.copy(queue_id::compute, space::device, down, space::device, up, 4);
    read[i] = d.record(queue_id::compute);
    d.wait(queue_id::d2h, read[i]);
    issue.copy(queue_id::d2h, space::host, out.at(i), space::device, down, 4);
    drained[i] = d.record(queue_id::d2h);
  }
  d.synchronize();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < n; ++i) {
    wrong += out[i] != i * i + 3 ? 1U : 0U;
  }
  CHECK(wrong == 0);
  CHECK(d.usage_of(space::device).peak == 1024);
  for (std::uint64_t const slot : {0U, 256U}) {
    d.release(space::device, slot, 4, category::parameter_buffers);
    d.release(space::device, 512 + slot, 4, category::gradients);
  }
  CHECK(d.usage_of(space::device).live == 0);
}

template <class F>
void check_device_transitive() {
  auto d = F::make();
  d.reserve(space::host, 4096);
  cells word(d, 0, 2);
  word.fill([](std::size_t i) { return static_cast<std::uint32_t>(i); });
  issuer issue(d);
  for (std::uint32_t round = 0; round < 50; ++round) {
    word.fill([&](std::size_t i) { return i == 0 ? round + 5 : 0; });
    // Nothing runs on gather and cpu: they only pass the order on.
    issue.copy(queue_id::reduce, space::host, word.at(1), space::host, word.at(0), 4);
    issue.after(queue_id::gather, queue_id::reduce);
    issue.after(queue_id::cpu, queue_id::gather);
    issue.after(queue_id::compute, queue_id::cpu);
    issue.copy(queue_id::compute, space::host, word.at(0), space::host, word.at(1), 4);
    d.synchronize();
    d.reset_events();
    CHECK(word[0] == round + 5);
    CHECK(word[1] == round + 5);
  }
}

template <class F>
void check_device_failure() {
  struct mishap : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  auto d = F::make();
  issuer issue(d);
  for (int round = 0; round < 3; ++round) {
    // Not atomic: every one of these tasks comes before or after every other.
    int before = 0;
    int after = 0;
    issue.task(queue_id::h2d, {}, [&](device::queue_ref) { ++before; });
    issue.after(queue_id::compute, queue_id::h2d);
    issue.task(queue_id::compute, {}, [](device::queue_ref) { throw mishap("block 3"); });
    issue.task(queue_id::compute, {}, [&](device::queue_ref) { ++after; });
    issue.after(queue_id::cpu, queue_id::compute);
    issue.task(queue_id::cpu, {}, [&](device::queue_ref) { throw std::runtime_error("later"); });
    issue.after(queue_id::d2h, queue_id::cpu);
    issue.task(queue_id::d2h, {}, [&](device::queue_ref) { ++after; });
    CHECK_THROWS_WITH_AS(d.synchronize(), "block 3", mishap);
    CHECK(before == 1);
    CHECK(after == 0);
    CHECK_NOTHROW(d.synchronize());

    issue.task(queue_id::d2h, {}, [&](device::queue_ref) { ++after; });
    d.synchronize();
    CHECK(after == 1);
  }
}

template <class F>
void check_device_ledger() {
  contract_throws const guard;
  auto d = F::make();
  d.reserve(space::device, 8192);
  auto const at_peak = [&](category c) {
    return d.usage_of(space::device).at_peak[static_cast<std::size_t>(c)];
  };
  auto const maximum = [&](category c) {
    return d.usage_of(space::device).maximum[static_cast<std::size_t>(c)];
  };
  d.lease(space::device, 0, 100, category::parameters);
  d.lease(space::device, 512, 300, category::activations);
  d.settle();
  CHECK(d.usage_of(space::device).peak == 1024);
  CHECK(d.usage_of(space::device).live == 2);
  CHECK(at_peak(category::parameters) == 100);
  CHECK(at_peak(category::activations) == 300);
  CHECK(at_peak(category::padding) == 156 + 212);
  CHECK(at_peak(category::fragmentation) == 256);
  CHECK(d.usage_of(space::host) == device::usage{});

  CHECK_THROWS_AS(d.lease(space::device, 768, 1, category::scratch), contract_throws::broken);
  CHECK_THROWS_AS(d.lease(space::device, 256, 257, category::scratch), contract_throws::broken);
  CHECK_THROWS_AS(d.lease(space::device, 8192, 1, category::scratch), contract_throws::broken);
  CHECK_THROWS_AS(d.lease(space::device, 300, 1, category::scratch), contract_throws::broken);
  CHECK_THROWS_AS(d.release(space::device, 0, 99, category::parameters), contract_throws::broken);
  CHECK_THROWS_AS(d.release(space::device, 256, 1, category::scratch), contract_throws::broken);
  CHECK_THROWS_AS(d.release(space::device, 0, 100, category::scratch), contract_throws::broken);

  // A position as high as the first but fuller: the first one stays.
  d.lease(space::device, 256, 256, category::scratch);
  d.settle();
  CHECK(at_peak(category::scratch) == 0);
  CHECK(maximum(category::scratch) == 256);
  d.release(space::device, 512, 300, category::activations);
  d.settle();
  d.lease(space::device, 1024, 1, category::activations);
  d.settle();
  CHECK(d.usage_of(space::device).peak == 1280);
  CHECK(at_peak(category::scratch) == 256);
  CHECK(at_peak(category::activations) == 1);
  CHECK(at_peak(category::fragmentation) == 512);
  CHECK(maximum(category::activations) == 300);

  d.lease(space::device, 0, 0, category::scratch);
  d.release(space::device, 0, 0, category::scratch);
  d.release(space::device, 1024, 1, category::activations);
  d.reset_usage();
  CHECK(d.usage_of(space::device).peak == 512);
  CHECK(d.usage_of(space::device).live == 2);
  CHECK(maximum(category::activations) == 0);
}

template <class F>
void check_device_stale_event() {
  contract_throws const guard;
  auto d = F::make();
  issuer issue(d);
  CHECK_THROWS_AS(d.wait(queue_id::cpu, device::event{}), contract_throws::broken);
  device::event const first = d.record(queue_id::compute);
  d.wait(queue_id::cpu, first);
  d.synchronize();
  d.reset_events();
  CHECK_THROWS_AS(d.wait(queue_id::cpu, first), contract_throws::broken);
  d.wait(queue_id::cpu, d.record(queue_id::compute));
  d.synchronize();
}

template <class F>
void check_device_reserve() {
  auto d = F::make();
  for (std::size_t s = 0; s < space_count; ++s) {
    auto const where = static_cast<space>(s);
    d.reserve(where, 1);
    CHECK(reinterpret_cast<std::uintptr_t>(d.base(where)) % 4096 == 0);
    d.reserve(where, 1 << 20);
    REQUIRE(d.base(where) != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(d.base(where)) % 4096 == 0);
    d.lease(where, (1 << 20) - 256, 256, category::scratch);
    {
      contract_throws const guard;
      CHECK_THROWS_AS(d.reserve(where, 2 << 20), contract_throws::broken);
    }
    d.release(where, (1 << 20) - 256, 256, category::scratch);
    std::string message;
    try {
      d.reserve(where, std::uint64_t{1} << 60);
    } catch (device::device_error const& e) {
      message = e.what();
      CHECK(e.call() == "reserve");
    }
    CHECK(message.find(where == space::host ? "host memory" : "device memory") !=
          std::string::npos);
    CHECK(message.find("1152921504606846976") != std::string::npos);
    CHECK(message.find("1048576") != std::string::npos);
    d.reserve(where, 4096);
    CHECK(d.base(where) != nullptr);
  }
}

// Every queue writes its own cell again and again, reads a neighbour's when it is ordered after
// it, and all must agree with a sequential run.
template <class F>
void check_device_many() {
  constexpr std::size_t n = 100000;
  random_stream const draws{.key = 20240817};
  auto d = F::make();
  d.reserve(space::host, 4 * n + 8192);
  cells in(d, 0, n);
  cells out(d, granules(4 * n), queue_count * 64);
  in.fill([](std::size_t i) { return static_cast<std::uint32_t>(i + 1); });
  std::array<std::uint32_t, queue_count> expected{};
  auto const cell = [&](std::size_t q) { return out.at(64 * q); };
  issuer issue(d);
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t const word = draws.word(i);
    std::size_t const q = word % queue_count;
    std::size_t const other = (word >> 8U) % queue_count;
    auto const queue = static_cast<queue_id>(q);
    auto const neighbour = static_cast<queue_id>(other);
    if ((word >> 16U) % 8 == 0 && q != other && expected[other] != 0) {
      issue.after(queue, neighbour);
      issue.copy(queue, space::host, cell(q), space::host, cell(other), 4);
      issue.after(neighbour, queue);
      expected[q] = expected[other];
    } else {
      issue.copy(queue, space::host, cell(q), space::host, in.at(i), 4);
      expected[q] = static_cast<std::uint32_t>(i + 1);
    }
  }
  d.synchronize();
  std::uint64_t tasks = 0;
  for (std::size_t q = 0; q < queue_count; ++q) {
    CHECK(out[64 * q] == expected[q]);
    if constexpr (counts_work<decltype(d)>) {
      tasks += d.work_of(static_cast<queue_id>(q)).tasks;
    }
  }
  CHECK(tasks == (counts_work<decltype(d)> ? n : 0));
}

template <class F>
void check_device_zero() {
  auto d = F::make();
  double const start = d.seconds();
  d.reserve(space::host, 4096);
  d.reserve(space::device, 4096);
  d.synchronize();
  cells out(d, 0, 256);
  d.lease(space::device, 256, 1024, category::gradients);
  issuer issue(d);
  issue.task(queue_id::compute,
             {{.where = space::device, .offset = 256, .bytes = 1024, .write = true}},
             [&](device::queue_ref q) {
               d.zero(q, d.base(space::device) + 256, 1024);
               d.zero(q, d.base(space::device), 0);
               d.copy(q, d.base(space::host), d.base(space::device), 0);
             });
  issue.after(queue_id::d2h, queue_id::compute);
  issue.copy(queue_id::d2h, space::host, 0, space::device, 256, 1024);
  d.synchronize();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < 256; ++i) {
    wrong += out[i] != 0 ? 1U : 0U;
  }
  CHECK(wrong == 0);
  check_work(d, queue_id::d2h, {1, 1, 1024});
  d.release(space::device, 256, 1024, category::gradients);
  CHECK(d.seconds() >= start);
}

/// Registering nothing is nothing; twice is once.
template <class F>
void check_device_registration() {
  contract_throws const guard;
  auto d = F::make();
  for (std::size_t s = 0; s < space_count; ++s) {
    auto const where = static_cast<space>(s);
    d.reserve(where, 0);
    d.lease(where, 0, 0, category::scratch);
    d.lease(where, 0, 0, category::scratch);
    d.release(where, 0, 0, category::scratch);
    CHECK(d.usage_of(where) == device::usage{});

    for (std::uint64_t const bytes : {std::uint64_t{10'000}, std::uint64_t{3} << 20U}) {
      d.reserve(where, bytes);
      std::byte* const at = d.base(where);
      for (std::uint64_t const again : {bytes, bytes - 1, std::uint64_t{1}, std::uint64_t{0}}) {
        d.reserve(where, again);
        CHECK(d.base(where) == at);
      }
    }
    d.lease(where, 512, 300, category::batch);
    for (std::uint64_t const bytes : {300U, 1U, 512U}) {
      CHECK_THROWS_AS(d.lease(where, 512, bytes, category::batch), contract_throws::broken);
    }
    d.lease(where, 512, 0, category::batch);
    CHECK(d.usage_of(where).live == 1);
    CHECK(d.usage_of(where).maximum[static_cast<std::size_t>(category::batch)] == 300);
    d.release(where, 512, 300, category::batch);
    CHECK_THROWS_AS(d.release(where, 512, 300, category::batch), contract_throws::broken);
    CHECK(d.usage_of(where).live == 0);
  }
}

/// A law as a test case.
#define PROTRAIN_DEVICE_LAW(says, law) \
  TEST_CASE_TEMPLATE_DEFINE(says, F, law) { check_##law<F>(); }
PROTRAIN_DEVICE_LAW("device: work of one queue runs in submission order", device_order)
PROTRAIN_DEVICE_LAW("device: events order queues, a ring of slots is reused", device_events)
PROTRAIN_DEVICE_LAW("device: an event also stands for the waits before it", device_transitive)
PROTRAIN_DEVICE_LAW("device: a failure skips what follows and is rethrown once", device_failure)
PROTRAIN_DEVICE_LAW("device: leases are counted as they are taken", device_ledger)
PROTRAIN_DEVICE_LAW("device: a stale event is a contract error", device_stale_event)
PROTRAIN_DEVICE_LAW("device: arenas are aligned and grow, a refusal says what helps",
                    device_reserve)
PROTRAIN_DEVICE_LAW("device: 100000 tasks on six queues", device_many)
PROTRAIN_DEVICE_LAW("device: zero fills, nothing copies nothing, the clock goes on", device_zero)
PROTRAIN_DEVICE_LAW("zero-byte and double registration", device_registration)

}  // namespace protrain::test

/// All laws for these fixtures; in namespace protrain::test or with its names visible.
#define PROTRAIN_DEVICE_LAWS(...)                             \
  TEST_CASE_TEMPLATE_INVOKE(device_order, __VA_ARGS__);       \
  TEST_CASE_TEMPLATE_INVOKE(device_events, __VA_ARGS__);      \
  TEST_CASE_TEMPLATE_INVOKE(device_transitive, __VA_ARGS__);  \
  TEST_CASE_TEMPLATE_INVOKE(device_failure, __VA_ARGS__);     \
  TEST_CASE_TEMPLATE_INVOKE(device_ledger, __VA_ARGS__);      \
  TEST_CASE_TEMPLATE_INVOKE(device_stale_event, __VA_ARGS__); \
  TEST_CASE_TEMPLATE_INVOKE(device_reserve, __VA_ARGS__);     \
  TEST_CASE_TEMPLATE_INVOKE(device_many, __VA_ARGS__);        \
  TEST_CASE_TEMPLATE_INVOKE(device_zero, __VA_ARGS__);        \
  TEST_CASE_TEMPLATE_INVOKE(device_registration, __VA_ARGS__)
