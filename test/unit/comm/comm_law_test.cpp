// SPDX-License-Identifier: Apache-2.0
// The laws of a communicator, held by those that ship and by an archetype of several ranks in one
// process. A ring's order of additions breaks them, and so does rounding each sum.

#include "protrain/comm/communicator.hpp"
#include "protrain/comm/error.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/core/arithmetic.hpp"
#include "protrain/core/philox.hpp"
#include "test/law/comm.hpp"
#include "test/law/comm_fixture.hpp"

#include <doctest/doctest.h>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::test {

enum class adds : std::uint8_t { in_rank_order, like_a_ring, rounding_each };

/// What ranks of one process share: a barrier per queue that an abort opens.
template <std::uint32_t Ranks>
class meeting {
 public:
  struct table {
    std::array<std::byte*, Ranks> data{};
    std::array<std::uint64_t, Ranks> numbers{};
    std::uint32_t arrived = 0;
    std::uint64_t round = 0;
  };

  table& at(std::size_t queue) { return tables_[queue]; }

  void wait(table& t) {
    std::unique_lock lock(mutex_);
    if (++t.arrived == Ranks) {
      t.arrived = 0;
      ++t.round;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&, now = t.round] { return t.round != now || aborted_.has_value(); });
    }
    if (aborted_) {
      throw comm::comm_error(*aborted_, "rank " + std::to_string(*aborted_) + ": " + why_);
    }
  }
  void abort(std::uint32_t rank, std::string_view why) {
    std::lock_guard const lock(mutex_);
    aborted_ = rank;
    why_ = why;
    changed_.notify_all();
  }

 private:
  std::array<table, queue_count + 1> tables_{};
  std::mutex mutex_{};
  std::condition_variable changed_{};
  std::optional<std::uint32_t> aborted_{};
  std::string why_{};
};

/// As little as a communicator can be.
template <std::uint32_t Ranks, adds How>
class archetype {
 public:
  archetype(meeting<Ranks>& m, std::uint32_t rank) : meeting_(m), rank_(rank) {}

  std::uint32_t rank() const noexcept { return rank_; }
  std::uint32_t size() const noexcept { return Ranks; }

  void reduce_scatter_ordered(
      device::queue_ref q, std::byte* data, std::byte*, std::uint64_t n, dtype type) {
    type == dtype::bf16  ? reduce<bfloat16>(q, data, n)
    : type == dtype::f16 ? reduce<float16>(q, data, n)
                         : reduce<float>(q, data, n);
  }
  void all_gather(device::queue_ref q, std::byte* data, std::uint64_t bytes) {
    auto& t = meet(q, data);
    for (std::uint32_t r = 0; bytes > 0 && r < Ranks; ++r) {
      if (r != rank_) {
        std::memcpy(data + r * bytes, t.data[r] + r * bytes, bytes);
      }
    }
    meeting_.wait(t);
  }
  std::uint64_t sum(std::uint64_t n) {
    auto& t = meeting_.at(queue_count);
    t.numbers[rank_] = n;
    meeting_.wait(t);
    std::uint64_t total = 0;
    for (std::uint64_t const each : t.numbers) {
      total += each;
    }
    meeting_.wait(t);
    return total;
  }
  void abort(std::string_view why) noexcept { meeting_.abort(rank_, why); }

 private:
  auto& meet(device::queue_ref q, std::byte* data) {
    auto& t = meeting_.at(static_cast<std::size_t>(q.id));
    t.data[rank_] = data;
    meeting_.wait(t);
    return t;
  }

  template <class T>
  void reduce(device::queue_ref q, std::byte* data, std::uint64_t n) {
    auto& t = meet(q, data);
    std::uint64_t const shard = n / Ranks;
    std::uint32_t const first = How == adds::like_a_ring ? (rank_ + 1) % Ranks : 0;
    for (std::uint64_t i = rank_ * shard; i < (rank_ + 1) * shard; ++i) {
      float total = widen(reinterpret_cast<T const*>(t.data[first])[i]);
      for (std::uint32_t k = 1; k < Ranks; ++k) {
        total += widen(reinterpret_cast<T const*>(t.data[(first + k) % Ranks])[i]);
        total = How == adds::rounding_each ? widen(narrow<T>(total)) : total;
      }
      reinterpret_cast<T*>(data)[i] = narrow<T>(total);
    }
    meeting_.wait(t);
  }

  meeting<Ranks>& meeting_;
  std::uint32_t rank_;
};
static_assert(comm::communicator<archetype<3, adds::in_rank_order>>);

struct alone {
  static constexpr std::uint32_t ranks = 1;
  static comm::self make(std::uint32_t) { return {}; }
};

template <std::uint32_t Ranks>
struct several {
  static constexpr std::uint32_t ranks = Ranks;
  comm::threads make(std::uint32_t rank) { return {group, rank}; }
  comm::thread_group group{Ranks};
};

template <std::uint32_t Ranks, adds How = adds::in_rank_order>
struct least {
  static constexpr std::uint32_t ranks = Ranks;
  archetype<Ranks, How> make(std::uint32_t rank) { return {shared, rank}; }
  meeting<Ranks> shared{};
};

template <class Group>
using direct = on_ranks<Group, direct_member>;
template <class Group>
using as_tasks = on_ranks<Group, host_member>;

PROTRAIN_COMM_LAWS(direct<alone>,
                   as_tasks<alone>,
                   direct<several<1>>,
                   direct<several<2>>,
                   direct<several<3>>,
                   direct<several<5>>,
                   as_tasks<several<1>>,
                   as_tasks<several<2>>,
                   as_tasks<several<3>>,
                   as_tasks<several<5>>,
                   direct<least<3>>);

template <class Group, stored_float T>
std::uint64_t wrong_elements(dtype type) {
  std::uint64_t sum = 0;
  for (std::uint64_t const w : wrongly_reduced_by_rank<direct<Group>, T>(500, type)) {
    sum += w;
  }
  return sum;
}

enum class breach : std::uint8_t {
  counts_from_one,
  gathers_wrongly,
  sums_in_doubles,
  refuses_nothing,
  hides_the_reason
};

/// Three ranks that break one law.
template <breach How>
class lawless {
 public:
  using inner = archetype<3, adds::in_rank_order>;
  lawless(meeting<3>& m, std::uint32_t rank) : inner_(m, rank) {}

  std::uint32_t rank() const noexcept { return inner_.rank(); }
  std::uint32_t size() const noexcept { return How == breach::counts_from_one ? 4 : 3; }

  void reduce_scatter_ordered(
      device::queue_ref q, std::byte* data, std::byte* staging, std::uint64_t n, dtype type) {
    if (How == breach::refuses_nothing && n == 0) {
      throw comm::comm_error(rank(), "nothing to reduce");
    }
    inner_.reduce_scatter_ordered(q, data, staging, n, type);
  }
  void all_gather(device::queue_ref q, std::byte* data, std::uint64_t bytes) {
    inner_.all_gather(q, data, bytes);
    if (How == breach::gathers_wrongly && bytes > 1) {
      std::swap(data[0], data[1]);
    }
  }
  std::uint64_t sum(std::uint64_t n) {
    std::uint64_t const exact = inner_.sum(n);
    return How == breach::sums_in_doubles
               ? static_cast<std::uint64_t>(static_cast<double>(exact) + 0.0)
               : exact;
  }
  void abort(std::string_view why) noexcept {
    inner_.abort(How == breach::hides_the_reason ? std::string_view("failed") : why);
  }

 private:
  inner inner_;
};

template <breach How>
struct lawless_group {
  static constexpr std::uint32_t ranks = 3;
  lawless<How> make(std::uint32_t rank) { return {shared, rank}; }
  meeting<3> shared{};
};

// Their failures are what passes.
TEST_CASE("ranks that count wrongly are found out" * doctest::should_fail()) {
  check_comm_ranks<direct<lawless_group<breach::counts_from_one>>>();
}
TEST_CASE("a gather that mixes up bytes is found out" * doctest::should_fail()) {
  check_comm_gather<direct<lawless_group<breach::gathers_wrongly>>>();
}
TEST_CASE("a sum that rounds is found out" * doctest::should_fail()) {
  check_comm_sum<direct<lawless_group<breach::sums_in_doubles>>>();
}
TEST_CASE("ranks that can't collect nothing are found out" * doctest::should_fail()) {
  check_comm_nothing<direct<lawless_group<breach::refuses_nothing>>>();
}
TEST_CASE("an abort without its reason is found out" * doctest::should_fail()) {
  check_comm_abort<direct<lawless_group<breach::hides_the_reason>>>();
}

/// A sum as rings of bf16 add it, from the owner's successor around to the owner, rounding each.
std::uint16_t around_the_ring(std::vector<float> const& of_rank, std::uint64_t first) {
  bfloat16 total = to_bfloat16(of_rank[first % of_rank.size()]);
  for (std::size_t k = 1; k < of_rank.size(); ++k) {
    float const next = widen(to_bfloat16(of_rank[(first + k) % of_rank.size()]));
    total = to_bfloat16(widen(total) + next);
  }
  return total.bits;
}

/// Of 10,000 elements, how many sums have other bits in chunks of one size than in those of another.
std::uint64_t changed_by_chunk_size(std::uint64_t ranks) {
  random_stream const draws{.key = 31};
  std::uint64_t changed = 0;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    std::vector<float> of_rank;
    for (std::uint64_t r = 0; r < ranks; ++r) {
      of_rank.push_back(draws.uniform(i * ranks + r) - 0.5F);
    }
    auto const owner = [&](std::uint64_t chunk) { return i % chunk * ranks / chunk; };
    changed += around_the_ring(of_rank, owner(840) + 1) != around_the_ring(of_rank, owner(1680) + 1)
                   ? 1U
                   : 0U;
  }
  return changed;
}

TEST_CASE("a ring's order depends on the chunk size: nothing shows of two ranks, much of more") {
  CHECK(changed_by_chunk_size(2) == 0);
  for (std::uint64_t const ranks : {3U, 4U, 5U, 6U, 7U, 8U}) {
    std::uint64_t const changed = changed_by_chunk_size(ranks);
    CHECK(changed > 1000);
    CHECK(changed < 6000);
  }
}

TEST_CASE("a ring's order depends on the chunk size: it breaks the law from three ranks on") {
  CHECK(wrong_elements<least<2, adds::like_a_ring>, float>(dtype::f32) == 0);
  CHECK(wrong_elements<least<3, adds::like_a_ring>, float>(dtype::f32) > 0);
  CHECK(wrong_elements<least<3, adds::like_a_ring>, bfloat16>(dtype::bf16) > 0);
  CHECK(wrong_elements<least<5, adds::like_a_ring>, float16>(dtype::f16) > 0);
  CHECK(wrong_elements<least<5>, float>(dtype::f32) == 0);
}

TEST_CASE("rounding each sum breaks the law of ordered reductions") {
  CHECK(wrong_elements<least<3, adds::rounding_each>, bfloat16>(dtype::bf16) > 0);
  CHECK(wrong_elements<least<3, adds::rounding_each>, float16>(dtype::f16) > 0);
}

}  // namespace protrain::test
