// SPDX-License-Identifier: Apache-2.0
#pragma once
// The library's own arithmetic on chunk memory, for devices whose memory the host can read.
// Everything here is elementwise or exact, so that chunks and sites never show in the bits.

#include "protrain/chunk/layout.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/dtype.hpp"
#include "protrain/core/float16.hpp"
#include "protrain/model/job.hpp"
#include "protrain/optim/accumulate.hpp"
#include "protrain/optim/exact_sum.hpp"
#include "protrain/optim/master.hpp"
#include "protrain/optim/norm.hpp"
#include "protrain/optim/pieces.hpp"
#include "protrain/optim/update.hpp"
#include "protrain/optim/update_rule.hpp"
#include "protrain/runtime/batch.hpp"
#include "protrain/schedule/program.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace protrain::inline v0::runtime {

/// One tensor of a chunk, wherever the chunk's arrays are.
struct chunk_arrays {
  std::byte* value = nullptr;
  std::byte* state = nullptr;
  std::byte const* gradient = nullptr;
  dtype gradient_type = dtype::f32;
  dtype value_type = dtype::f32;
  std::uint64_t elements = 0;  ///< of the chunk, padding included
};

namespace detail {

template <class F>
void with_type(dtype type, F const& f) {
  if (type == dtype::bf16) {
    f(std::type_identity<bfloat16>{});
  } else if (type == dtype::f16) {
    f(std::type_identity<float16>{});
  } else {
    PROTRAIN_EXPECT(type == dtype::f32, "values and gradients are fp32, bf16 or fp16");
    f(std::type_identity<float>{});
  }
}

template <class T>
T* at(std::byte* base, std::uint64_t element) noexcept {
  return reinterpret_cast<T*>(base) + element;
}
template <class T>
T const* at(std::byte const* base, std::uint64_t element) noexcept {
  return reinterpret_cast<T const*>(base) + element;
}

}  // namespace detail

/// What of a tensor lies in a piece of its chunk; no elements if nothing does.
constexpr chunk::placed_tensor within(chunk::placed_tensor t, optim::element_range const& piece) {
  std::uint64_t const end = t.offset + t.elements;
  t.offset = std::clamp(t.offset, piece.begin, piece.end);
  t.elements = std::clamp(end, piece.begin, piece.end) - t.offset;
  return t;
}

/// Adds a span's contribution to the chunk's store; the first contribution to a tensor is stored.
inline void accumulate(schedule::gradient_span const& span,
                       chunk::chunk const& c,
                       bool first_batch,
                       dtype contribution,
                       dtype stored,
                       std::byte const* from,
                       std::byte* to,
                       optim::element_range const& piece = {}) {
  detail::with_type(contribution, [&]<class T>(std::type_identity<T>) {
    for (schedule::span_tensor const& use : span.tensors) {
      chunk::placed_tensor const t = within(c.tensors[use.tensor], piece);
      T const* const g = detail::at<T>(from, t.offset);
      if (stored == contribution && !std::is_same_v<T, float>) {
        optim::store(detail::at<T>(to, t.offset), g, t.elements);
      } else if (first_batch && use.first) {
        optim::store(detail::at<float>(to, t.offset), g, t.elements);
      } else {
        optim::add(detail::at<float>(to, t.offset), g, t.elements);
      }
    }
  });
}

/// Adds the squares of a chunk's gradient to a sum.
inline void add_squares(optim::exact_sum& sum,
                        chunk::chunk const& c,
                        chunk_arrays const& a,
                        optim::element_range const& piece = {}) {
  detail::with_type(a.gradient_type, [&]<class T>(std::type_identity<T>) {
    for (chunk::placed_tensor const& whole : c.tensors) {
      chunk::placed_tensor const t = within(whole, piece);
      optim::add_squares(sum, detail::at<T>(a.gradient, t.offset), t.elements);
    }
  });
}

/// The same to the sum in `cell`.
inline void add_norm(chunk::chunk const& c, chunk_arrays const& a, std::byte* cell) {
  optim::exact_sum sum;
  std::memcpy(&sum, cell, sizeof sum);
  add_squares(sum, c, a);
  std::memcpy(cell, &sum, sizeof sum);
}
static_assert(sizeof(optim::exact_sum) <= schedule::norm_cell_bytes);
static_assert(std::is_trivially_copyable_v<optim::exact_sum>);

namespace detail {

/// Bytes per element that a chunk's state begins with, before the rule's own.
constexpr std::uint64_t master_bytes(model::state_format format) noexcept {
  switch (format) {
    case model::state_format::fp32:
      return 0;
    case model::state_format::split_master:
      return 2;
    case model::state_format::separate_master:
      return 4;
  }
  return 0;
}

}  // namespace detail

/// Where the state arrays of element `offset` start: after the 16-bit low halves in `split_master`,
/// after the fp32 master in `separate_master`, at once in `fp32`.
template <optim::update_rule Rule>
optim::state_arrays<Rule> state_at(model::state_format format,
                                   chunk_arrays const& a,
                                   std::uint64_t offset) {
  std::uint64_t const skip = detail::master_bytes(format) * a.elements;
  optim::state_arrays<Rule> out{};
  for (std::size_t k = 0; k < Rule::state_tensors; ++k) {
    out[k] = detail::at<float>(a.state + skip + 4 * a.elements * k, offset);
  }
  return out;
}

namespace detail {

/// Calls f with the masters of one trainable tensor, as the state format stores them.
template <class F>
void with_masters(model::state_format format,
                  chunk::placed_tensor const& t,
                  chunk_arrays const& a,
                  F const& f) {
  switch (format) {
    case model::state_format::fp32:
      return f(optim::whole_master{at<float>(a.value, t.offset)});
    case model::state_format::split_master:
      return f(optim::split_halves{at<bfloat16>(a.value, t.offset),
                                   at<std::int16_t>(a.state, t.offset)});
    case model::state_format::separate_master:
      auto* const master = at<float>(a.state, t.offset);
      if (a.value_type == dtype::f16) {
        return f(optim::master_beside<float16>{master, at<float16>(a.value, t.offset)});
      }
      return f(optim::master_beside<bfloat16>{master, at<bfloat16>(a.value, t.offset)});
  }
}

/// The same where the tensor may be frozen: without state its value is all there is.
template <class F>
void with_values(model::state_format format,
                 chunk::placed_tensor const& t,
                 chunk_arrays const& a,
                 F const& f) {
  if (a.state != nullptr || format == model::state_format::fp32) {
    return with_masters(format, t, a, f);
  }
  dtype const type = format == model::state_format::split_master ? dtype::bf16 : a.value_type;
  with_type(type, [&]<class T>(std::type_identity<T>) {
    f(optim::value_alone<T>{at<T>(a.value, t.offset)});
  });
}

}  // namespace detail

/// Updates one tensor of a chunk.
template <optim::update_rule Rule>
void update_tensor(model::state_format format,
                   typename Rule::step_type const& step,
                   float scale,
                   chunk::placed_tensor const& t,
                   chunk_arrays const& a) {
  auto const state = state_at<Rule>(format, a, t.offset);
  detail::with_type(a.gradient_type, [&]<class T>(std::type_identity<T>) {
    T const* const g = detail::at<T>(a.gradient, t.offset);
    detail::with_masters(format, t, a, [&](auto const& masters) {
      optim::update_range<Rule>(step, scale, g, masters, state, t.elements);
    });
  });
}

/// Writes a tensor's fp32 values into its chunk, as the state format stores them; the rule's state
/// is left alone.
inline void write_master(model::state_format format,
                         float const* from,
                         chunk::placed_tensor const& t,
                         chunk_arrays const& a) {
  detail::with_values(format, t, a, [&](auto const& masters) {
    for (std::uint64_t i = 0; i < t.elements; ++i) {
      masters.store(i, from[i]);
    }
  });
}

/// Reads a tensor's fp32 values; of a frozen one, its rounded values.
inline void read_master(model::state_format format,
                        float* to,
                        chunk::placed_tensor const& t,
                        chunk_arrays const& a) {
  detail::with_values(format, t, a, [&](auto const& masters) {
    for (std::uint64_t i = 0; i < t.elements; ++i) {
      to[i] = masters.load(i);
    }
  });
}

}  // namespace protrain::inline v0::runtime
