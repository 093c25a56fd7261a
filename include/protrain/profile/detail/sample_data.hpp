// SPDX-License-Identifier: Apache-2.0
#pragma once
// What blocks compute with while they are measured: the caller's batch, and numbers like those of
// training. Zeros and denormals would have other speeds.

#include "protrain/block/elements.hpp"
#include "protrain/block/entry.hpp"
#include "protrain/core/philox.hpp"
#include "protrain/device/device.hpp"
#include "protrain/profile/error.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::profile::detail {

/// A tensor of the caller's batch, of at least one micro-batch.
struct given_tensor {
  std::string_view name{};
  void const* data = nullptr;
  std::uint64_t bytes = 0;
};

/// Uniform in +-`spread`; integers are 0 or 1, which are tokens of every vocabulary. A few KiB that
/// repeat, so that a large model needs no host memory; no tensor's rows are of that length.
class pattern {
 public:
  pattern(dtype type, float spread) : type_(type), spread_(spread), data_(period) {
    random_stream const stream = initial_stream(0, hash_name("profile"));
    tensor_view const all{data_.data(), type, {period / size_of(type)}};
    bool const integers = type == dtype::i32 || type == dtype::u8;
    for (std::uint64_t i = 0; i < all.elements(); ++i) {
      float const u = stream.uniform(i);
      float const low = u < 0.5F ? 0.0F : 1.0F;
      block::store_element(
          all, i, static_cast<double>(integers ? low : (2.0F * u - 1.0F) * spread));
    }
  }

  bool is(dtype type, float spread) const noexcept { return type_ == type && spread_ == spread; }
  std::span<std::byte const> bytes() const noexcept { return data_; }

 private:
  static constexpr std::uint64_t period =
      std::uint64_t{8} * 8191;  // a prime number of 8-byte elements

  dtype type_;
  float spread_;
  std::vector<std::byte> data_;
};

/// Where the bytes of one tensor come from.
struct filling {
  std::byte* to = nullptr;
  std::uint64_t bytes = 0;
  std::span<std::byte const> from{};  ///< repeated
};

class sample_data {
 public:
  /// `batch` is empty, or has all of the table's batch tensors.
  sample_data(block::table const& t, std::vector<given_tensor> batch) : batch_(std::move(batch)) {
    patterns_.reserve(16);  // two for each type at most: spans into them stay
    for (block::batch_tensor const& b : t.batch) {
      if (!batch_.empty()) {
        check(b);
      }
    }
  }

  filling parameter(std::byte* to, block::tensor_facts const& t) { return random(to, t, 0x1p-4F); }
  filling boundary(std::byte* to, block::tensor_facts const& t) { return random(to, t, 0.5F); }
  filling batch(std::byte* to, block::batch_tensor const& b) {
    given_tensor const* const own = find(b.name);
    if (own == nullptr) {
      return random(to, b.facts, 0.5F);
    }
    auto const size = static_cast<std::size_t>(b.facts.bytes());
    return {to, size, {static_cast<std::byte const*>(own->data), size}};
  }

 private:
  given_tensor const* find(std::string_view name) const {
    auto const at = std::ranges::find(batch_, name, &given_tensor::name);
    return at == batch_.end() ? nullptr : &*at;
  }

  void check(block::batch_tensor const& b) const {
    given_tensor const* const own = find(b.name);
    if (own == nullptr) {
      throw profile_error("the batch has no tensor '" + b.name + "', which the model reads");
    }
    if (own->bytes < b.facts.bytes()) {
      throw profile_error("batch tensor '" + b.name + "' has " + std::to_string(own->bytes) +
                          " bytes, a micro-batch has " + std::to_string(b.facts.bytes()));
    }
  }

  filling random(std::byte* to, block::tensor_facts const& t, float spread) {
    auto at =
        std::ranges::find_if(patterns_, [&](pattern const& p) { return p.is(t.type, spread); });
    if (at == patterns_.end()) {
      at = patterns_.emplace(patterns_.end(), t.type, spread);
    }
    return {to, t.bytes(), at->bytes()};
  }

  std::vector<given_tensor> batch_;
  std::vector<pattern> patterns_{};
};

/// From inside a task of queue h2d.
template <device::device Device>
void fill(Device& d, device::queue_ref q, filling const& f) {
  for (std::uint64_t at = 0; at < f.bytes; at += f.from.size()) {
    d.copy(q, f.to + at, f.from.data(), std::min<std::uint64_t>(f.from.size(), f.bytes - at));
  }
}

}  // namespace protrain::inline v0::profile::detail
