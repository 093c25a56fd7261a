// SPDX-License-Identifier: Apache-2.0
// The laws of a communicator, held by the one that ships and by an archetype of several ranks in
// one process. A ring's order of additions breaks them.

#include "protrain/comm/communicator.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/core/bfloat16.hpp"
#include "test/law/comm.hpp"

#include <doctest/doctest.h>

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace protrain::test {

/// What ranks of one process share.
template <std::uint32_t Ranks>
struct meeting {
  std::barrier<> all{Ranks};
  std::vector<std::byte*> data = std::vector<std::byte*>(Ranks, nullptr);
  std::vector<std::uint64_t> numbers = std::vector<std::uint64_t>(Ranks, 0);
};

/// As little as a communicator can be: every collective is a meeting of all ranks. `Ring` adds in
/// the order in which a ring passes an element on, which depends on its owner.
template <std::uint32_t Ranks, bool Ring>
class archetype {
 public:
  archetype(meeting<Ranks>& m, std::uint32_t rank) : meeting_(m), rank_(rank) {}

  std::uint32_t rank() const noexcept { return rank_; }
  std::uint32_t size() const noexcept { return Ranks; }

  void reduce_scatter_ordered(device::queue_ref, std::byte* data, std::uint64_t n, dtype type) {
    type == dtype::bf16 ? reduce<bfloat16>(data, n) : reduce<float>(data, n);
  }
  void all_gather(device::queue_ref, std::byte* data, std::uint64_t n) {
    meet(data);
    for (std::uint32_t r = 0; n > 0 && r < Ranks; ++r) {
      std::uint64_t const at = r * (n / Ranks);
      if (r != rank_) {
        std::memcpy(data + at, meeting_.data[r] + at, n / Ranks);
      }
    }
    meeting_.all.arrive_and_wait();
  }
  std::uint64_t sum(std::uint64_t n) {
    meeting_.numbers[rank_] = n;
    meeting_.all.arrive_and_wait();
    std::uint64_t total = 0;
    for (std::uint64_t const each : meeting_.numbers) {
      total += each;
    }
    meeting_.all.arrive_and_wait();
    return total;
  }

 private:
  void meet(std::byte* data) {
    meeting_.data[rank_] = data;
    meeting_.all.arrive_and_wait();
  }

  template <class T>
  void reduce(std::byte* data, std::uint64_t n) {
    meet(data);
    std::uint64_t const shard = n / Ranks;
    std::uint32_t const first = Ring ? (rank_ + 1) % Ranks : 0;
    for (std::uint64_t i = rank_ * shard; i < (rank_ + 1) * shard; ++i) {
      float total = widened(reinterpret_cast<T const*>(meeting_.data[first])[i]);
      for (std::uint32_t k = 1; k < Ranks; ++k) {
        total += widened(reinterpret_cast<T const*>(meeting_.data[(first + k) % Ranks])[i]);
      }
      reinterpret_cast<T*>(data)[i] = narrowed<T>(total);
    }
    meeting_.all.arrive_and_wait();
  }

  meeting<Ranks>& meeting_;
  std::uint32_t rank_;
};
static_assert(comm::communicator<archetype<3, false>>);

struct alone {
  static constexpr std::uint32_t ranks = 1;
  template <class Body>
  static void run(Body body) {
    comm::self c;
    body(c);
  }
};

template <std::uint32_t Ranks, bool Ring = false>
struct threads {
  static constexpr std::uint32_t ranks = Ranks;
  template <class Body>
  static void run(Body body) {
    meeting<Ranks> m;
    std::vector<std::thread> all;
    for (std::uint32_t r = 0; r < Ranks; ++r) {
      all.emplace_back([&, r] {
        archetype<Ranks, Ring> c(m, r);
        body(c);
      });
    }
    for (std::thread& t : all) {
      t.join();
    }
  }
};

PROTRAIN_COMM_LAWS(alone, threads<2>, threads<3>, threads<5>);

template <class F>
std::uint64_t wrong_elements() {
  std::uint64_t sum = 0;
  for (std::uint64_t const w : wrongly_reduced_by_rank<F, float>(500, dtype::f32)) {
    sum += w;
  }
  return sum;
}

TEST_CASE("a ring breaks the law of ordered reductions, from three ranks on") {
  CHECK(wrong_elements<threads<2, true>>() == 0);
  CHECK(wrong_elements<threads<3, true>>() > 0);
  CHECK(wrong_elements<threads<5, true>>() > 0);
  CHECK(wrong_elements<threads<5>>() == 0);
}

}  // namespace protrain::test
