// SPDX-License-Identifier: Apache-2.0
// How far the simulation is from the execution: drawn plans, run on a host device whose links and
// memories are slowed down to a machine's rates, with blocks that wait.

#include "bench/sim/drawn_plans.hpp"
#include "bench/sim/paced_device.hpp"
#include "bench/sim/waiting_model.hpp"
#include "examples/cli/flags.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/io/json.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/sim/simulate.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace protrain;  // NOLINT(google-build-using-namespace): one program

constexpr double aim_percent = 4;

/// Seconds of one step.
struct outcome {
  std::string job{};
  std::string plan{};
  double predicted = 0;
  double measured = 0;  ///< mean over `steps` in a row
  double fastest = 0;   ///< of these: what a busy machine disturbs least
  std::uint64_t steps = 0;
  std::uint32_t hand_overs = 0;  ///< from queue to queue, on the chain that the step waits for

  double error() const { return 100 * (measured / predicted - 1); }
  double least_error() const { return 100 * (fastest / predicted - 1); }
  double late() const { return (measured - predicted) / std::max(1U, hand_overs); }
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What instruction `i` started right after: on another queue, if that is possible, since a wait for
/// something that takes no time is a wait.
std::uint32_t cause_of(schedule::program const& p, sim::timeline const& t, std::uint32_t i) {
  auto const ends_then = [&](std::uint32_t other) { return t.at[other].end == t.at[i].start; };
  queue_id const own = p.instructions[i].queue;
  for (std::uint32_t const d : p.dependencies_of(p.instructions[i])) {
    if (ends_then(d) && p.instructions[d].queue != own) {
      return d;
    }
  }
  for (std::uint32_t k = i; k-- > 0;) {
    if (p.instructions[k].queue == own) {
      return ends_then(k) ? k : i;
    }
  }
  return i;
}

/// Changes of the queue along the chain that ends last; the issuing thread counts as a queue.
std::uint32_t hand_overs_in(schedule::program const& p,
                            trace::trace const& f,
                            hw::machine const& m) {
  sim::timeline const t = bench::timeline_of(p, f, m);
  std::uint32_t i = 0;
  while (t.at[i].end != t.finish) {
    ++i;
  }
  std::uint32_t n = 2;
  for (std::uint32_t next = cause_of(p, t, i); next != i; next = cause_of(p, t, i)) {
    n += p.instructions[next].queue != p.instructions[i].queue ? 1U : 0U;
    i = next;
  }
  return n;
}

/// Runs the plan for about `seconds` after its first step, which has nothing left over.
outcome measure(bench::drawn_plan const& drawn, hw::machine const& m, double seconds) {
  bench::paced_device device(m);
  bench::waiting_config const sizes = bench::waiting_sizes(drawn.layers);
  auto const model = bench::waiting_model(device, sizes);
  trace::trace const facts = bench::waiting_trace(model, drawn.job, sizes);
  auto const plan =
      plan::make(facts, m, plan::budget_of(m), plan::policies<>{}, drawn.wanted, plan::limits{});
  if (!plan) {
    throw std::runtime_error("no plan: " + std::string(plan.failure().explanation().view()));
  }
  outcome out{.job = drawn.job_string(), .plan = std::string(plan->string().view())};
  auto const step = bench::step_of(*plan, true);
  out.predicted = bench::simulated(step, facts, m).seconds();
  for (schedule::program const& p : step) {
    out.hand_overs += p.times * hand_overs_in(p, facts, m);
  }
  out.steps = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(seconds / out.predicted), 1, 8);

  comm::self comm;
  runtime::engine engine(device, comm, model, *plan);
  std::vector<std::uint8_t> const tokens(bench::waiting_batch_bytes * drawn.job.accumulate, 0);
  runtime::batch data;
  data.add("tokens", tokens.data(), tokens.size()).targets(tokens.size());
  auto last = engine.step(data, {});
  last.get();
  double const start = now();
  out.fastest = seconds + out.predicted * 1e6;
  for (std::uint64_t n = 0; n < out.steps; ++n) {
    auto next = engine.step(data, {});  // waits for the one before
    out.fastest = n > 0 ? std::min(out.fastest, last.get().seconds) : out.fastest;
    last = next;
  }
  out.fastest = std::min(out.fastest, last.get().seconds);
  out.measured = (now() - start) / static_cast<double>(out.steps);
  return out;
}

/// Seconds that one queue is late when it waits for another: two take turns, each for a millisecond.
double hand_over() {
  constexpr std::uint32_t turns = 100;
  device::host_device d;
  device::task const turn{.run =
                              [](void* context, std::uint32_t, device::queue_ref q) {
                                static_cast<device::host_device*>(context)->hold(q, 1_ms);
                              },
                          .context = &d};
  double const start = now();
  for (std::uint32_t n = 0; n < turns; ++n) {
    queue_id const mine = n % 2 == 0 ? queue_id::h2d : queue_id::d2h;
    d.wait(mine, d.record(n % 2 == 0 ? queue_id::d2h : queue_id::h2d));
    d.submit(mine, {}, turn);
  }
  d.synchronize();
  return (now() - start) / turns - 0.001;
}

double percentile(std::vector<double> values, std::size_t percent) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[(values.size() - 1) * percent / 100];
}

template <class Get>
std::vector<double> each(std::vector<outcome> const& all, Get const& get) {
  std::vector<double> out;
  out.reserve(all.size());
  for (outcome const& o : all) {
    out.push_back(get(o));
  }
  return out;
}

void print_header() {
  std::printf("%3s %11s %11s %8s %8s %6s %6s %9s  %s\n",
              "",
              "predicted",
              "measured",
              "error",
              "fastest",
              "steps",
              "hands",
              "late each",
              "job and plan");
}

void print_row(std::size_t n, outcome const& o) {
  std::printf("%3zu %8.3f ms %8.3f ms %6.2f %% %6.2f %% %6llu %6u %6.0f us  %s %s\n",
              n + 1,
              1e3 * o.predicted,
              1e3 * o.measured,
              o.error(),
              o.least_error(),
              static_cast<unsigned long long>(o.steps),
              o.hand_overs,
              1e6 * o.late(),
              o.job.c_str(),
              o.plan.c_str());
  std::fflush(stdout);
}

void print_summary(std::vector<outcome> const& all, double hand_over_seconds) {
  // A step that is too fast is as wrong as one that is too slow.
  auto const print = [&](char const* what, std::vector<double> const& errors) {
    auto const within = std::ranges::count_if(errors, [](double e) { return e < aim_percent; });
    std::printf(
        "%s: median %.2f %%, nine of ten below %.2f %%, at most %.2f %%; %td of %zu under %g %%\n",
        what,
        percentile(errors, 50),
        percentile(errors, 90),
        percentile(errors, 100),
        within,
        errors.size(),
        aim_percent);
  };
  print("error of the mean step", each(all, [](outcome const& o) { return std::abs(o.error()); }));
  print("of the fastest step",
        each(all, [](outcome const& o) { return std::abs(o.least_error()); }));
  std::printf("a queue that waits for another is %.0f us late, the issuer counts as one\n",
              1e6 * hand_over_seconds);
}

io::json as_json(std::vector<outcome> const& all, std::uint64_t seed, double hand_over_seconds) {
  io::json plans = io::json::array();
  for (outcome const& o : all) {
    plans.push_back({{"job", o.job},
                     {"plan", o.plan},
                     {"predicted_seconds", o.predicted},
                     {"measured_seconds", o.measured},
                     {"fastest_seconds", o.fastest},
                     {"error_percent", o.error()},
                     {"steps", o.steps},
                     {"hand_overs", o.hand_overs}});
  }
  auto const errors = each(all, [](outcome const& o) { return std::abs(o.error()); });
  return {{"seed", seed},
          {"hand_over_seconds", hand_over_seconds},
          {"median_percent", percentile(errors, 50)},
          {"max_percent", percentile(errors, 100)},
          {"plans", std::move(plans)}};
}

int run(int count, char** words) {
  cli::flags f(
      "Usage: against_execution [FLAGS]\n\n"
      "Runs drawn plans on a slowed-down host device and compares the time of a step with the\n"
      "simulation's. Threads that the machine wakes late count as errors: on a busy one, run it\n"
      "under `chrt -f 1`; it needs a tenth of one core.");
  f.add("plans", "N", "50", "how many")
      .add("seconds", "S", "0.5", "to measure each plan, beside its first step")
      .add("seed", "N", "1", "of the drawing")
      .add_switch("json", "print one JSON object")
      .add_switch("help", "print this");
  if (f.parse(count, words).given("help")) {
    std::printf("%s", f.help().c_str());
    return 0;
  }
  bool const json = f.given("json");
  std::uint64_t const plans = f.integer("plans", 50, 1, 10'000);
  double const seconds = f.number("seconds", 0.5, 0, 3600, "from 0 to 3600");
  std::uint64_t const seed = f.integer("seed", 1, 0, ~std::uint64_t{0});
  bench::drawing drawing(seed);
  hw::machine const m = bench::waiting_machine();
  double const late = hand_over();
  std::vector<outcome> all;
  if (!json) {
    print_header();
  }
  while (all.size() < plans) {
    all.push_back(measure(drawing.draw(all.size()), m, seconds));
    if (!json) {
      print_row(all.size() - 1, all.back());
    }
  }
  if (json) {
    std::printf("%s\n", as_json(all, seed, late).dump(2).c_str());
  } else {
    print_summary(all, late);
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(count, words);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "against_execution: %s\n", e.what());
    return 1;
  }
}
