// SPDX-License-Identifier: Apache-2.0
// More elements than 32 bits count, in the kernels themselves. Slow: run on request.

#include "protrain/core/bfloat16.hpp"
#include "protrain/optim/accumulate.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/norm.hpp"
#include "protrain/optim/update.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace large_counts_test {

namespace {

using namespace protrain;

constexpr std::uint64_t n = 250'880ULL * 14'336 + (std::uint64_t{1} << 30U);
static_assert(n > std::uint64_t{1} << 32U);
constexpr std::uint64_t window = 8U << 20U;

/// `n` elements of which only the first and the last window have memory of their own: everything
/// between lies in one window, again and again.
template <class T>
class folded {
 public:
  folded() {
    std::uint64_t const bytes = (n * sizeof(T) + window - 1) / window * window;
    bytes_ = bytes;
    void* const at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    data_ = static_cast<std::byte*>(at);
    int const file = ::memfd_create("window", 0);
    REQUIRE(file >= 0);
    REQUIRE(::ftruncate(file, 3 * window) == 0);
    for (std::uint64_t offset = 0; offset < bytes; offset += window) {
      bool const last = offset + window == bytes;
      std::uint64_t const part = offset == 0 ? 0 : (last ? 2 * window : window);
      void* const placed = ::mmap(data_ + offset,
                                  window,
                                  PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_FIXED,
                                  file,
                                  static_cast<off_t>(part));
      REQUIRE(placed != MAP_FAILED);
    }
    ::close(file);
  }
  folded(folded const&) = delete;
  folded& operator=(folded const&) = delete;
  ~folded() { ::munmap(data_, bytes_); }

  T* get() const { return reinterpret_cast<T*>(data_); }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace

TEST_CASE("32-bit counts: norm, accumulation and update reach the first and the last element") {
  folded<bfloat16> const gradient;
  gradient.get()[0] = to_bfloat16(3.0F);
  gradient.get()[n - 1] = to_bfloat16(4.0F);
  optim::exact_sum sum{};
  optim::add_squares(sum, gradient.get(), n);
  CHECK(optim::norm(sum) == 5.0F);

  folded<float> const sums;
  optim::store(sums.get(), gradient.get(), n);
  optim::add(sums.get(), gradient.get(), n);
  CHECK(sums.get()[0] == 6.0F);
  CHECK(sums.get()[n - 1] == 8.0F);

  folded<float> const value;
  folded<float> const m;
  folded<float> const v;
  auto const step = optim::adamw{}.prepare(0.5, 1, false);
  optim::update_fp32<optim::adamw>(step, 1.0F, gradient.get(), value.get(), {m.get(), v.get()}, n);
  CHECK(value.get()[0] == doctest::Approx(-0.5).epsilon(1e-4));
  CHECK(value.get()[n - 1] == doctest::Approx(-0.5).epsilon(1e-4));
  CHECK(value.get()[n / 2] == 0.0F);
}

}  // namespace large_counts_test
