// SPDX-License-Identifier: Apache-2.0
#pragma once
// Plans as JSON: the answer of planning for other programs, and the file that an engine is made
// from later. A file says which job it is for and is refused for another.

#include "protrain/io/job.hpp"
#include "protrain/io/json.hpp"
#include "protrain/plan/compare.hpp"
#include "protrain/plan/effects.hpp"
#include "protrain/plan/explain.hpp"
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/memory_over_time.hpp"
#include "protrain/plan/micro_batch.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/sensitivity.hpp"
#include "protrain/sim/simulate.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/timing.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::io {

/// What a plan is for.
struct plan_subject {
  std::string model_type{};
  std::string machine{};
  trace::trace const& facts;
};

/// Parameters that the table has, tied ones once.
inline std::uint64_t parameter_count(trace::trace const& t) {
  std::uint64_t n = 0;
  for (model::parameter const& p : t.parameters) {
    n = checked_add(n, model::elements(p));
  }
  return n;
}

namespace detail {

inline json plan_head(plan_subject const& s) {
  return {{"protrain", "plan"},
          {"version", 1},
          {"model",
           {{"type", s.model_type},
            {"parameters", parameter_count(s.facts)},
            {"blocks", s.facts.blocks.size()}}},
          {"machine", s.machine},
          {"trace", trace::name_of(s.facts.from)},
          {"job", io::to_json(s.facts.job)},
          {"fingerprint", hex16(trace::fingerprint(s.facts))}};
}

/// Those categories that aren't 0.
inline json by_category(std::array<std::uint64_t, category_count> const& bytes) {
  json out = json::object();
  for (std::size_t c = 0; c < category_count; ++c) {
    if (bytes[c] != 0) {
      out[std::string(name_of(static_cast<category>(c)))] = bytes[c];
    }
  }
  return out;
}

/// All categories at the peak, where they sum to it, and each at its own.
inline json memory(plan::prediction const& of) {
  return {{"gpu", by_category(of.device.at_peak)},
          {"host", by_category(of.host.at_peak)},
          {"gpu_maximum", by_category(of.device.maximum)},
          {"host_maximum", by_category(of.host.maximum)}};
}

/// Blocks at each save level that the bundle's assignment policy places.
inline json levels(plan::numbers const& n) {
  json out = json::array();
  for (std::uint32_t k = 0; k < n.depth; ++k) {
    out.push_back(n.levels[k]);
  }
  return out;
}

inline json decisions(plan::plan const& p) {
  char const* const streamed = p.at.streamed < p.at.moving ? "split" : "streamed";
  return {{"string", p.string().view()},
          {"chunk_bytes", p.at.chunk},
          {"chunks", p.layout.chunks.size()},
          {"n_persist", p.at.persist},
          {"n_buffer", p.at.buffer},
          {"n_swap", p.at.swap},
          {"n_checkpoint", p.at.checkpoint},
          {"swap_interval", p.at.interval},
          {"sizing", p.sizing.view() == "policy" ? "uniform_grid" : "given"},
          {"levels", levels(p.at)},
          {"update",
           {{"site", p.at.streamed == 0 ? "cpu" : streamed},
            {"streamed", p.at.streamed},
            {"time", update::name_of(p.at.time)},
            {"defer", p.at.defer}}},
          {"unroll", p.at.unroll},
          {"slots", {{"gradient", p.at.gradient_slots}, {"streaming", p.at.streaming_slots}}}};
}

inline double tokens_per_second(std::uint64_t tokens, picoseconds iteration) {
  return static_cast<double>(tokens) / std::max(iteration.seconds(), 1e-12);
}

inline json predicted(plan::plan const& p) {
  plan::prediction const& of = p.predicted;
  json exposed = json::object();
  for (std::size_t q = 0; q < queue_count; ++q) {
    exposed[std::string(name_of(static_cast<queue_id>(q)))] = of.exposed[q].seconds();
  }
  json out{
      {"seconds_per_iteration", of.iteration.seconds()},
      {"tokens_per_second", tokens_per_second(model::tokens_per_step(p.trace.job), of.iteration)}};
  json bound_by = json::object();
  for (std::size_t i = 0; i < sim::phase_count; ++i) {
    std::string const phase(sim::name_of(static_cast<sim::phase>(i)));
    out[phase + "_seconds"] = of.phases[i].seconds();
    if (of.phases[i].value > 0) {
      bound_by[phase] = name_of(of.phase_bound_by[i]);
    }
  }
  out["phases_bound_by"] = std::move(bound_by);
  out["exposed_seconds"] = std::move(exposed);
  out["gpu_peak_bytes"] = of.device.peak;
  out["host_bytes"] = of.host.peak;
  return out;
}

inline json alternatives(plan::plan const& p) {
  json out = json::array();
  for (plan::alternative const& a : p.runner_up) {
    out.push_back({{"name", a.name.view()},
                   {"string", plan::print(a.at).view()},
                   {"seconds_per_iteration", a.iteration.seconds()},
                   {"gpu_peak_bytes", a.device_peak},
                   {"host_bytes", a.host_peak}});
  }
  return out;
}

inline json knobs(std::vector<plan::knob_effect> const& effects) {
  json out = json::array();
  for (plan::knob_effect const& e : effects) {
    out.push_back({{"knob", e.knob},
                   {"string", plan::print(e.at).view()},
                   {"seconds_per_iteration", e.iteration.seconds()},
                   {"gpu_peak_bytes", e.device_peak.value},
                   {"host_bytes", e.host_peak.value}});
  }
  return out;
}

inline json sensitivity(plan::sensitivity const& s) {
  return {{"string", plan::print(s.at).view()},
          {"seconds_per_iteration", s.iteration.seconds()},
          {"seconds_saved", s.saved.seconds()}};
}

inline json sensitivity(plan::another_rank const& r) {
  if (r.world == 0) {
    return nullptr;
  }
  json out{{"world", r.world}, {"feasible", r.fits}};
  if (r.fits) {
    out["string"] = plan::print(r.at).view();
    out["seconds_per_iteration"] = r.iteration.seconds();
    out["tokens_per_second"] = tokens_per_second(r.tokens, r.iteration);
  } else {
    out["reason"] = r.lacks.explanation().view();
    out["gpu_short_bytes"] = r.lacks.short_device;
    out["host_short_bytes"] = r.lacks.short_host;
  }
  return out;
}

/// The memory's own members lie on top.
inline json sensitivities(plan::explanation const& e) {
  json out = sensitivity(e.gpu);
  out["more_gpu_bytes"] = e.gpu.more.value;
  out["bandwidth"] = sensitivity(e.bandwidth);
  out["bandwidth"]["percent"] = plan::more_bandwidth_percent;
  out["rank"] = sensitivity(e.rank);
  return out;
}

}  // namespace detail

/// A plan that was found, what more of something would buy, what its knobs do, and how it fills memory
/// over time.
inline json to_json(plan_subject const& s,
                    plan::plan const& p,
                    plan::explanation const& more,
                    std::vector<plan::knob_effect> const& effects = {},
                    plan::memory_over_time const& filled = {}) {
  json out = detail::plan_head(s);
  out["feasible"] = true;
  out["plan"] = detail::decisions(p);
  out["predicted"] = detail::predicted(p);
  out["memory"] = detail::memory(p.predicted);
  out["memory_over_time"] = {{"seconds", filled.length.seconds()},
                             {"gpu_bytes", filled.device},
                             {"host_bytes", filled.host}};
  out["bound_by"] = name_of(p.predicted.bound_by);
  out["alternatives"] = detail::alternatives(p);
  out["sensitivity"] = detail::sensitivities(more);
  out["knobs"] = detail::knobs(effects);
  json changed = json::array();
  for (text const& line : p.changed) {
    changed.push_back(line.view());
  }
  out["changed"] = std::move(changed);
  out["search"] = {{"candidates", p.search.candidates},
                   {"compiled", p.search.compiled},
                   {"proven", p.search.proven},
                   {"bound_seconds", p.search.bound.seconds()}};
  return out;
}

/// A shortage of memory.
inline json to_json(plan_subject const& s, plan::infeasible const& f) {
  json out = detail::plan_head(s);
  out["feasible"] = false;
  out["short"] = {{"where", f.where() == space::device ? "gpu" : "host"},
                  {"bytes", f.short_bytes()}};
  out["nearest"] = {{"string", plan::print(f.nearest).view()},
                    {"gpu_bytes", f.needs_device},
                    {"host_bytes", f.needs_host},
                    {"gpu_short_bytes", f.short_device},
                    {"host_short_bytes", f.short_host}};
  return out;
}

/// Ways to train, each with its plan's numbers or what it lacks.
inline json to_json(std::vector<plan::contender> const& all) {
  json out = json::array();
  for (plan::contender const& c : all) {
    json one{{"name", c.name}, {"feasible", c.answer.has_value()}};
    if (c.answer) {
      one["string"] = c.answer->string().view();
      one["predicted"] = detail::predicted(*c.answer);
    } else {
      one["gpu_short_bytes"] = c.answer.failure().short_device;
      one["host_short_bytes"] = c.answer.failure().short_host;
    }
    out.push_back(std::move(one));
  }
  return out;
}

/// Sizes of the micro-batch, in the order in which they were looked at.
inline json to_json(std::vector<plan::micro_batch_seen> const& all) {
  json out = json::array();
  for (plan::micro_batch_seen const& s : all) {
    json one{{"micro_batch", s.micro_batch}, {"feasible", s.fits}};
    if (s.fits) {
      one["seconds_per_iteration"] = s.iteration.seconds();
      one["tokens_per_second"] = plan::tokens_per_second(s);
      one["gpu_peak_bytes"] = s.device_peak;
      one["proven"] = s.proven;
    }
    out.push_back(std::move(one));
  }
  return out;
}

/// What a file says about a plan.
struct plan_file {
  std::string string{};
  std::string model_type{};
  std::uint64_t parameters = 0;
  std::uint64_t blocks = 0;
  model::job job{};
  std::uint64_t fingerprint = 0;
};

inline plan_file parse_plan(json_field const& top) {
  check_head(top, "plan");
  if (json_field const feasible = top.at("feasible"); !feasible.boolean()) {
    feasible.fail("is the answer that nothing fits; there is no plan to use");
  }
  constexpr std::uint64_t most = std::uint64_t{1} << 60U;
  json_field const model = top.at("model");
  plan_file out{.string = top.at("plan").at("string").string(),
                .model_type = model.at("type").string(),
                .parameters = model.at("parameters").integer(0, most),
                .blocks = model.at("blocks").integer(0, most),
                .job = parse_job(top.at("job")),
                .fingerprint = top.at("fingerprint").hex()};
  if (auto const read = plan::parse(out.string, out.job); !read) {
    top.at("plan").at("string").fail(std::string(read.failure().message().view()));
  }
  return out;
}

inline plan_file read_plan(std::string const& path) {
  json_document const file = read_json(path);
  return parse_plan(file.top());
}

namespace detail {

/// The first member in which two jobs differ, with both values; empty names none.
inline std::array<std::string, 3> first_difference(model::job const& a, model::job const& b) {
  json const left = io::to_json(a);
  json const right = io::to_json(b);
  for (auto const& member : left.items()) {
    if (member.value() != right[member.key()]) {
      return {"job." + member.key(), member.value().dump(), right[member.key()].dump()};
    }
  }
  return {};
}

}  // namespace detail

/// Throws input_error that names the first difference unless the file's plan is for this job.
inline void check_subject(plan_file const& f, std::string const& path, plan_subject const& s) {
  auto const differs = [&](std::string const& field, std::string const& has, std::string want) {
    throw input_error(
        path, field, has, "is another job's, this one has " + std::move(want) + "; plan again");
  };
  if (f.model_type != s.model_type) {
    differs("model.type", f.model_type, s.model_type);
  }
  std::uint64_t const parameters = parameter_count(s.facts);
  if (f.parameters != parameters) {
    differs("model.parameters", std::to_string(f.parameters), std::to_string(parameters));
  }
  if (f.blocks != s.facts.blocks.size()) {
    differs("model.blocks", std::to_string(f.blocks), std::to_string(s.facts.blocks.size()));
  }
  if (auto const d = detail::first_difference(f.job, s.facts.job); !d[0].empty()) {
    differs(d[0], d[1], d[2]);
  }
  if (std::uint64_t const now = trace::fingerprint(s.facts); f.fingerprint != now) {
    differs("fingerprint", hex16(f.fingerprint), hex16(now));
  }
}

}  // namespace protrain::inline v0::io
