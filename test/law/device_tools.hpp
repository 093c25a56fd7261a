// SPDX-License-Identifier: Apache-2.0
#pragma once
// What tests of devices share: contracts that throw, closures as tasks, cells of host memory.

#include "protrain/core/config.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/device/device.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace protrain::test {

/// A broken contract throws while one of these lives.
class contract_throws {
 public:
  struct broken : std::logic_error {
    using std::logic_error::logic_error;
  };
  contract_throws()
      : old_(set_violation_handler([](violation const& v) { throw broken(v.message); })) {}
  contract_throws(contract_throws const&) = delete;
  contract_throws& operator=(contract_throws const&) = delete;
  ~contract_throws() { set_violation_handler(old_); }

 private:
  violation_handler old_;
};

/// Issues tasks that are closures and keeps them until it ends, like an engine that doesn't care
/// about allocations.
template <class D>
class issuer {
 public:
  explicit issuer(D& d) : device_(d) {}
  issuer(issuer const&) = delete;
  issuer& operator=(issuer const&) = delete;

  void task(queue_id q,
            std::initializer_list<device::touched> touched,
            std::function<void(device::queue_ref)> body) {
    task(q, std::span(touched.begin(), touched.size()), std::move(body));
  }

  void task(queue_id q,
            std::span<device::touched const> touched,
            std::function<void(device::queue_ref)> body) {
    bodies_.push_back(std::move(body));
    device_.submit(q,
                   touched,
                   {.run = &issuer::run,
                    .context = &bodies_.back(),
                    .index = static_cast<std::uint32_t>(bodies_.size() - 1)});
  }

  /// Copies `n` bytes between places of the arenas.
  void copy(queue_id q,
            space to,
            std::uint64_t to_offset,
            space from,
            std::uint64_t from_offset,
            std::uint64_t n) {
    std::byte* const target = device_.base(to) + to_offset;
    std::byte const* const source = device_.base(from) + from_offset;
    task(q,
         {{.where = from, .offset = from_offset, .bytes = n, .read = true},
          {.where = to, .offset = to_offset, .bytes = n, .write = true}},
         [this, target, source, n](device::queue_ref r) { device_.copy(r, target, source, n); });
  }

  void after(queue_id q, queue_id earlier) { device_.wait(q, device_.record(earlier)); }

 private:
  static void run(void* context, std::uint32_t, device::queue_ref q) {
    (*static_cast<std::function<void(device::queue_ref)>*>(context))(q);
  }

  D& device_;
  std::deque<std::function<void(device::queue_ref)>> bodies_{};
};

/// Leased words of host memory: cells that tests write before and read after a run.
template <class D>
class cells {
 public:
  cells(D& d, std::uint64_t offset, std::size_t n) : device_(d), offset_(offset), count_(n) {
    d.lease(space::host, offset, bytes(), category::batch);
  }
  cells(cells const&) = delete;
  cells& operator=(cells const&) = delete;
  ~cells() { device_.release(space::host, offset_, bytes(), category::batch); }

  std::uint64_t at(std::size_t i) const { return offset_ + 4 * i; }
  void fill(std::function<std::uint32_t(std::size_t)> const& value) {
    for (std::size_t i = 0; i < count_; ++i) {
      std::uint32_t const word = value(i);
      std::memcpy(device_.base(space::host) + at(i), &word, 4);
    }
    device::note_written(device_, space::host, offset_, bytes());
  }
  std::uint32_t operator[](std::size_t i) const {
    std::uint32_t word = 0;
    std::memcpy(&word, device_.base(space::host) + at(i), 4);
    return word;
  }

 private:
  std::uint64_t bytes() const { return 4 * count_; }

  D& device_;
  std::uint64_t offset_;
  std::size_t count_;
};

constexpr std::array<queue_id, queue_count> all_queues{queue_id::compute,
                                                       queue_id::h2d,
                                                       queue_id::d2h,
                                                       queue_id::gather,
                                                       queue_id::reduce,
                                                       queue_id::cpu};

}  // namespace protrain::test
