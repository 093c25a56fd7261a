// SPDX-License-Identifier: Apache-2.0
#pragma once
// The paper's iteration time, equations (2) to (7), one function each: [S] as the paper states it,
// [R] reconstructed where its print is unreadable, [I] our inference. An estimate that orders and
// explains candidates and never discards one: it is no lower bound, as it looks one chunk ahead
// only and lets no two transfers overlap (test/property/sim shows it above simulated times).
// Chunks are counted from 1, as in the paper; N_chunk is the number of them.

#include "protrain/core/units.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/cost/paper_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::cost {

namespace detail {

/// Transfers of chunk `i` (1 to N_chunk) in a stage that swaps, or not.
constexpr paper_transfers const& transfers(paper_job const& j, std::size_t i, std::uint8_t swaps) {
  return swaps != 0 ? j.chunks[i - 1].beside_swap : j.chunks[i - 1].alone;
}

/// T_comp_fwd(i); nothing is computed before the first chunk.
constexpr picoseconds compute_forward(paper_job const& j, std::size_t i) {
  return i == 0 ? picoseconds{} : j.chunks[i - 1].forward;
}

/// T_comp_bwd(i) + T_recomp(i); nothing before the last chunk's.
constexpr picoseconds compute_backward(paper_job const& j, paper_plan const& p, std::size_t i) {
  return i > j.chunks.size() ? picoseconds{} : j.chunks[i - 1].backward + p.recompute[i];
}

}  // namespace detail

/// (4) [S] T_prefetch_fwd(i) = 0 if i <= n_persist or i > N_chunk, else T_gather(i) + T_upload(i).
/// It runs beside the forward of chunk i - 1, and slower if that swaps.
constexpr picoseconds prefetch_forward(paper_job const& j, paper_plan const& p, std::size_t i) {
  if (i <= p.numbers.persist || i > j.chunks.size()) {
    return {};
  }
  paper_transfers const& t = detail::transfers(j, i, p.swap_forward[i - 1]);
  return t.gather + t.upload;
}

/// (3) [S] T_fwd = sum over i = 1..N_chunk+1 of max(T_comp_fwd(i-1), T_prefetch_fwd(i)).
constexpr picoseconds forward_time(paper_job const& j, paper_plan const& p) {
  picoseconds sum{};
  for (std::size_t i = 1; i <= j.chunks.size() + 1; ++i) {
    sum += std::max(detail::compute_forward(j, i - 1), prefetch_forward(j, p, i));
  }
  return sum;
}

/// (7) [R] T_prefetch_bwd(i) = 0 if i <= n_persist or i > N_chunk - n_buffer (still in a buffer),
/// else T_gather(i) + T_upload(i). It runs beside the backward of chunk i + 1.
constexpr picoseconds prefetch_backward(paper_job const& j, paper_plan const& p, std::size_t i) {
  if (i <= p.numbers.persist || i + p.numbers.buffer > j.chunks.size()) {
    return {};
  }
  paper_transfers const& t = detail::transfers(j, i, p.swap_backward[i + 1]);
  return t.gather + t.upload;
}

/// (6) [S] T_reduce_offload(i) = T_reduce(i) if i <= n_persist; 0 if i > N_chunk; else T_reduce(i)
/// + T_offload(i). It runs beside the backward of chunk i - 1 [I], or of chunk i without `drain`.
constexpr picoseconds reduce_offload(paper_job const& j, paper_plan const& p, std::size_t i) {
  if (i == 0 || i > j.chunks.size()) {
    return {};
  }
  paper_transfers const& t = detail::transfers(j, i, p.swap_backward[j.drain ? i - 1 : i]);
  return i <= p.numbers.persist ? t.reduce : t.reduce + t.offload;
}

/// (5) T_bwd = sum over i = 1..N_chunk+1 of max(T_comp_bwd(i) + T_recomp(i) [S],
/// T_prefetch_bwd(i-1) + T_reduce_offload(i) [R]). A gradient is ready only when its chunk's
/// backward ends, so with `drain` T_reduce_offload(i+1) takes the place of (i), and chunk 1's
/// follows after the sum [I].
constexpr picoseconds backward_time(paper_job const& j, paper_plan const& p) {
  picoseconds sum = j.drain ? reduce_offload(j, p, 1) : picoseconds{};
  for (std::size_t i = 1; i <= j.chunks.size() + 1; ++i) {
    picoseconds const moved =
        prefetch_backward(j, p, i - 1) + reduce_offload(j, p, j.drain ? i + 1 : i);
    sum += std::max(detail::compute_backward(j, p, i), moved);
  }
  return sum;
}

/// T_gpu_optim: the persistent chunks' updates, which depend on their sizes alone.
constexpr picoseconds gpu_optimizer_time(paper_job const& j, paper_numbers const& n) {
  picoseconds sum{};
  for (std::size_t i = 0; i < n.persist; ++i) {
    sum += j.chunks[i].gpu_optimizer;
  }
  return sum;
}

/// T_cpu_optim: all others'.
constexpr picoseconds cpu_optimizer_time(paper_job const& j, paper_numbers const& n) {
  picoseconds sum{};
  for (std::size_t i = n.persist; i < j.chunks.size(); ++i) {
    sum += j.chunks[i].cpu_optimizer;
  }
  return sum;
}

/// The four parts of (2).
struct paper_times {
  picoseconds forward{};
  picoseconds backward{};
  picoseconds gpu_optimizer{};
  picoseconds cpu_optimizer{};
  bool operator==(paper_times const&) const = default;
};

/// (2) [S] T_iter = T_fwd + max(T_bwd + T_gpu_optim, T_cpu_optim). [I] Further micro-batches repeat
/// both passes, and updates that wait for the norm overlap no backward.
constexpr picoseconds iteration_time(paper_job const& j, paper_times const& t) {
  PROTRAIN_EXPECT(j.micro_batches > 0, "a step has a micro-batch");
  picoseconds const before = t.forward * j.micro_batches + t.backward * (j.micro_batches - 1);
  if (j.waits) {
    return before + t.backward + std::max(t.gpu_optimizer, t.cpu_optimizer);
  }
  return before + std::max(t.backward + t.gpu_optimizer, t.cpu_optimizer);
}

/// Where the time goes, to explain a candidate.
constexpr paper_times times_of(paper_job const& j, paper_plan const& p) {
  return {.forward = forward_time(j, p),
          .backward = backward_time(j, p),
          .gpu_optimizer = gpu_optimizer_time(j, p.numbers),
          .cpu_optimizer = cpu_optimizer_time(j, p.numbers)};
}

/// (2) of a plan. O(chunks).
constexpr picoseconds iteration_time(paper_job const& j, paper_plan const& p) {
  return iteration_time(j, times_of(j, p));
}

}  // namespace protrain::inline v0::cost
