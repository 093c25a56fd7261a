// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a probe measures, in which order, and what becomes of it.
// Included by profile/probe.hpp alone.

#include "protrain/comm/communicator.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/text.hpp"
#include "protrain/core/units.hpp"
#include "protrain/device/device.hpp"
#include "protrain/device/processors.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/profile/agree.hpp"
#include "protrain/profile/detail/lanes.hpp"
#include "protrain/profile/detail/probe_work.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::profile {

/// A piece of the device's arithmetic, a matrix product for one, with memory of its own.
struct compute_work {
  std::uint64_t flops = 0;
  std::function<void(device::queue_ref)> run{};  ///< called in a task of queue compute
};

struct probe_options {
  text name = "probed";
  text source = "measured";
  std::uint64_t copy = 16ULL << 20U;   ///< bytes of one copy, from which on links are at their best
  std::uint64_t update = 1ULL << 20U;  ///< elements of one step of the CPU optimizer
  std::uint32_t repetitions = 8;       ///< pieces of which the mean counts, at least
  /// Bytes of collectives; the smallest and the largest give latency and rate.
  std::vector<std::uint64_t> collectives = {1ULL << 16U, 1ULL << 20U, 16ULL << 20U};
  /// What blocks are made of. Without fp32, a plain loop on the host, which is right for devices of
  /// host memory only; without half, fp32 stands for both.
  compute_work fp32{};
  compute_work half{};
  bytes device_memory{};  ///< the device doesn't say
  bytes host_memory{};
  std::uint32_t threads = 0;  ///< of each rank's CPU optimizer; 0: as many as an engine's has
  /// Hears of each figure on rank 0: what, of how much, and how long it took.
  std::function<void(std::string_view what, std::uint64_t amount, picoseconds time)> see{};
};

namespace detail {

inline constexpr std::uint64_t prober_least = 4096;

enum class figure : std::uint8_t {
  small_up,
  small_down,
  up,
  down,
  inside,
  update,
  fp32,
  half,
  up_both,
  down_both,
  up_compute,
  down_compute,
  up_update,
  down_update,
  update_copies,
};
inline constexpr std::size_t figure_count = 15;

constexpr std::string_view name_of(figure f) noexcept {
  constexpr std::array<std::string_view, figure_count> names{"small copy up",
                                                             "small copy down",
                                                             "copy up",
                                                             "copy down",
                                                             "copy on the device",
                                                             "CPU optimizer",
                                                             "fp32",
                                                             "half",
                                                             "copy up beside copy down",
                                                             "copy down beside copy up",
                                                             "copy up beside compute",
                                                             "copy down beside compute",
                                                             "copy up beside CPU optimizer",
                                                             "copy down beside CPU optimizer",
                                                             "CPU optimizer beside copies"};
  return names[static_cast<std::size_t>(f)];
}

/// Units per second; `latency` is part of the time unless it is most of it.
constexpr std::uint64_t rate_of(std::uint64_t amount, picoseconds time, picoseconds latency = {}) {
  constexpr std::uint64_t second = 1'000'000'000'000;
  constexpr std::uint64_t most = std::uint64_t{1} << 60U;
  std::uint64_t const net =
      latency.value < time.value / 2 ? time.value - latency.value : time.value;
  __extension__ using wide = unsigned __int128;
  wide const r = static_cast<wide>(amount) * second / std::max<std::uint64_t>(1, net);
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::min<wide>(r, most)));
}

/// Rate and latency of t = latency + bytes / rate through the smallest and the largest size.
struct line {
  bandwidth rate{};
  picoseconds latency{};
};
constexpr line line_through(std::uint64_t small,
                            picoseconds small_time,
                            std::uint64_t large,
                            picoseconds large_time) {
  if (small >= large || small_time >= large_time) {
    return {.rate = {rate_of(large, large_time)}};
  }
  line out{.rate = {rate_of(large - small, large_time - small_time)}};
  picoseconds const net = time_of(small, out.rate);
  out.latency = small_time > net ? small_time - net : picoseconds{};
  return out;
}

template <device::device Device, comm::communicator Comm>
class prober {
 public:
  prober(Device& device, Comm& comm, probe_options const& options)
      : comm_(comm),
        options_(options),
        runner_(device),
        lanes_(device,
               {.copy = options.copy,
                .elements = options.update,
                .collective = whole(std::ranges::max(options.collectives))},
               threads_of_rank(options, comm)) {
    if (!options_.fp32.run) {
      options_.fp32 = {plain_product::flops,
                       [multiply = plain_product()](device::queue_ref) mutable { multiply(); }};
    }
  }

  hw::machine run() {
    if (comm_.rank() == 0) {
      measure_alone();
      measure_together();
    }
    for (std::size_t i = 0; i < figure_count; ++i) {
      times_[i].value = of_first(comm_, times_[i].value);
    }
    hw::machine out = machine();
    if (comm_.size() > 1) {
      measure_all_ranks(out);
      measure_collectives(out);
    }
    return out;
  }

 private:
  picoseconds& time(figure f) { return times_[static_cast<std::size_t>(f)]; }

  /// Granules for every rank.
  std::uint64_t whole(std::uint64_t bytes) const {
    return round_up(bytes, address_granule * comm_.size());
  }

  void see(std::string_view what, std::uint64_t amount, picoseconds time) const {
    if (options_.see && comm_.rank() == 0) {
      options_.see(what, amount, time);
    }
  }
  void note(figure f, lane const& l, picoseconds t) {
    time(f) = t;
    see(name_of(f), l.amount, t);
  }

  /// The first piece, which finds caches and clocks cold, doesn't count.
  picoseconds alone(lane const& l) {
    std::array const uses{lane_use{&l, options_.repetitions + 1}};
    intervals pieces = runner_.run(uses).front();
    pieces.erase(pieces.begin());
    return typical(pieces);
  }

  void measure_alone() {
    auto const measure = [&](figure f, lane const& l) { note(f, l, alone(l)); };
    measure(figure::small_up, lanes_.upload(address_granule));
    measure(figure::small_down, lanes_.download(address_granule));
    measure(figure::up, lanes_.upload(options_.copy));
    measure(figure::down, lanes_.download(options_.copy));
    measure(figure::inside, lanes_.inside());
    measure(figure::update, lanes_.update());
    measure(figure::fp32, product(options_.fp32));
    if (options_.half.run) {
      measure(figure::half, product(options_.half));
    }
  }

  static lane product(compute_work const& w) {
    return {.queue = queue_id::compute, .amount = w.flops, .work = w.run};
  }

  struct timed_lane {
    lane of;
    picoseconds alone;
  };

  /// Each lane's typical time beside the others, with as many pieces as keep all of them at work
  /// equally long.
  std::vector<picoseconds> together(std::vector<timed_lane> const& all) {
    std::uint64_t longest = 0;
    for (timed_lane const& l : all) {
      longest = std::max(longest, checked_mul(l.alone.value, options_.repetitions));
    }
    std::vector<lane_use> uses;
    uses.reserve(all.size());
    for (timed_lane const& l : all) {
      std::uint64_t const pieces =
          std::min(most_pieces, longest / std::max<std::uint64_t>(1, l.alone.value));
      uses.push_back({&l.of, std::max(options_.repetitions, static_cast<std::uint32_t>(pieces))});
    }
    std::vector<intervals> const ran = runner_.run(uses);
    std::vector<picoseconds> out;
    out.reserve(ran.size());
    for (std::size_t i = 0; i < ran.size(); ++i) {
      out.push_back(typical_beside(ran, i));
    }
    return out;
  }

  void measure_together() {
    timed_lane const up{lanes_.upload(options_.copy), time(figure::up)};
    timed_lane const down{lanes_.download(options_.copy), time(figure::down)};
    timed_lane const update{lanes_.update(), time(figure::update)};
    bool const half = static_cast<bool>(options_.half.run);
    timed_lane const compute{product(half ? options_.half : options_.fp32),
                             time(half ? figure::half : figure::fp32)};
    auto const both = together({up, down});
    note(figure::up_both, up.of, both[0]);
    note(figure::down_both, down.of, both[1]);
    note(figure::up_compute, up.of, together({up, compute})[0]);
    note(figure::down_compute, down.of, together({down, compute})[0]);
    note(figure::up_update, up.of, together({up, update})[0]);
    note(figure::down_update, down.of, together({down, update})[0]);
    note(figure::update_copies, update.of, together({update, up, down})[0]);
  }

  /// Of copies, from a granule's and a whole one's time.
  picoseconds latency(figure small, figure whole_copy) {
    return line_through(address_granule, time(small), options_.copy, time(whole_copy)).latency;
  }
  picoseconds up_latency() { return latency(figure::small_up, figure::up); }
  picoseconds down_latency() { return latency(figure::small_down, figure::down); }
  bandwidth up_rate(picoseconds t) { return {rate_of(options_.copy, t, up_latency())}; }
  bandwidth down_rate(picoseconds t) { return {rate_of(options_.copy, t, down_latency())}; }
  bandwidth update_rate(picoseconds t) const { return {rate_of(26 * options_.update, t)}; }

  /// What rank 0 found; collectives of one rank move nothing, and are as fast as its memory.
  hw::machine machine() {
    auto const flops = [](std::uint64_t n, picoseconds t) { return flop_rate{rate_of(n, t)}; };
    hw::machine m{.name = options_.name,
                  .source = options_.source,
                  .devices = comm_.size(),
                  .device_memory = options_.device_memory,
                  .host_memory = options_.host_memory,
                  .host_to_device = up_rate(time(figure::up)),
                  .device_to_host = down_rate(time(figure::down)),
                  .copy_latency = std::max(up_latency(), down_latency()),
                  .device_bandwidth = {rate_of(2 * options_.copy, time(figure::inside))},
                  .host_bandwidth = update_rate(time(figure::update)),
                  .host_threads = threads(),
                  .compute_fp32 = flops(options_.fp32.flops, time(figure::fp32))};
    m.compute_half =
        options_.half.run ? flops(options_.half.flops, time(figure::half)) : m.compute_fp32;
    m.collective = m.device_bandwidth;
    hw::concurrent_rates& c = m.concurrent;
    c.both_ways = {up_rate(time(figure::up_both)), down_rate(time(figure::down_both))};
    c.beside_compute = {up_rate(time(figure::up_compute)), down_rate(time(figure::down_compute))};
    c.beside_update = {up_rate(time(figure::up_update)), down_rate(time(figure::down_update))};
    c.update_beside_copies = update_rate(time(figure::update_copies));
    return m;
  }

  /// As an engine's CPU work has by default.
  static std::uint32_t threads_of_rank(probe_options const& options, Comm const& comm) {
    if (options.threads > 0) {
      return options.threads;
    }
    return device::threaded_tasks<Device>
               ? device::thread_share(device::processors_here(), comm::local_ranks(comm))
               : 1;
  }
  std::uint32_t threads() {
    return static_cast<std::uint32_t>(of_first(comm_, lanes_.threads())) * comm_.size();
  }

  /// All ranks start together; the slowest counts.
  picoseconds all_ranks(std::string_view what, lane const& l) {
    comm_.sum(0);
    picoseconds const slowest{largest(comm_, alone(l).value)};
    see(what, l.amount, slowest);
    return slowest;
  }

  void measure_all_ranks(hw::machine& m) {
    m.concurrent.all_ranks = {
        up_rate(all_ranks("copy up on all ranks", lanes_.upload(options_.copy))),
        down_rate(all_ranks("copy down on all ranks", lanes_.download(options_.copy)))};
    lane const update = lanes_.update();
    comm_.sum(0);
    picoseconds const own = alone(update);
    std::uint64_t const sum = comm_.sum(update_rate(own).per_second);
    m.concurrent.update_beside_copies = {
        mul_div(m.concurrent.update_beside_copies.per_second, sum, m.host_bandwidth.per_second)};
    m.host_bandwidth = {sum};
    see("CPU optimizer on all ranks", comm_.size() * update.amount, own);
  }

  void measure_collectives(hw::machine& m) {
    auto sizes = options_.collectives;
    std::ranges::sort(sizes);
    std::vector<picoseconds> times;
    for (std::uint64_t& size : sizes) {
      size = whole(size);
      times.push_back(std::max(all_ranks("all-gather", lanes_.gather(comm_, size)),
                               all_ranks("reduce-scatter", lanes_.reduce(comm_, size))));
    }
    line const fit = line_through(sizes.front(), times.front(), sizes.back(), times.back());
    m.collective = fit.rate;
    m.collective_latency = fit.latency;
  }

  static constexpr std::uint64_t most_pieces = 4096;

  Comm& comm_;
  probe_options options_;
  lane_runner<Device> runner_;
  probe_lanes<Device> lanes_;
  std::array<picoseconds, figure_count> times_{};
};

}  // namespace detail
}  // namespace protrain::inline v0::profile
