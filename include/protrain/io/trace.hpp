// SPDX-License-Identifier: Apache-2.0
#pragma once
// Traces as JSON files. What is written reads back as an equal value; a file whose members don't
// belong together is refused.

#include "protrain/io/job.hpp"
#include "protrain/io/json.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::io {

namespace detail {

inline constexpr std::uint64_t most_bytes = std::uint64_t{1} << 56U;
/// Below it, nanoseconds as a double hold every picosecond.
inline constexpr double most_nanoseconds = 2e12;

inline json nanoseconds(picoseconds t) {
  if (t.value % 1000 == 0) {
    return t.value / 1000;
  }
  return static_cast<double>(t.value) / 1000.0;
}

inline picoseconds read_nanoseconds(json_field const& f) {
  return {static_cast<std::uint64_t>(std::llround(f.number(0, most_nanoseconds) * 1000.0))};
}

inline bytes read_bytes(json_field const& f) { return {f.integer(0, most_bytes)}; }

inline json to_json(model::parameter const& p) {
  json uses = json::array();
  for (block_id const b : p.uses) {
    uses.push_back(b.value);
  }
  return {{"name", p.name.view()},
          {"shape", p.shape},
          {"dtype", core::name_of(p.type)},
          {"trainable", p.trainable},
          {"decay", p.decay},
          {"learning_rate_scale", shortest_double(p.learning_rate_scale)},
          {"uses", std::move(uses)}};
}

inline json to_json(trace::operator_facts const& o) {
  return {{"name", o.name.view()},
          {"forward_ns", nanoseconds(o.forward)},
          {"backward_ns", nanoseconds(o.backward)},
          {"scratch_peak_bytes", o.scratch_peak.value},
          {"saved_bytes", o.saved.value},
          {"delta_before_bytes", o.delta_before.value}};
}

inline json to_json(trace::save_level const& l) {
  return {{"name", l.name.view()},
          {"saved_bytes", l.saved.value},
          {"rebuilt_bytes", l.rebuilt.value},
          {"scratch_bytes", l.scratch.value},
          {"reads_input", l.reads_input},
          {"rebuild_ns", nanoseconds(l.rebuild)}};
}

inline json to_json(trace::block_shape const& s, bytes outside) {
  json pinned;
  if (s.pinned != trace::pin::free) {
    constexpr std::string_view names[] = {"", "keep", "checkpoint", "swap"};
    pinned = names[static_cast<std::size_t>(s.pinned)];
  }
  json levels = json::array();
  for (trace::save_level const& l : s.levels) {
    levels.push_back(to_json(l));
  }
  json ops = json::array();
  for (trace::operator_facts const& o : s.operators) {
    ops.push_back(to_json(o));
  }
  return {{"name", s.name.view()},
          {"pinned", std::move(pinned)},
          {"forward_ns", nanoseconds(s.forward)},
          {"backward_ns", nanoseconds(s.backward)},
          {"input_bytes", s.input.value},
          {"output_bytes", s.output.value},
          {"saved_bytes", s.saved.value},
          {"scratch_forward_bytes", s.scratch_forward.value},
          {"scratch_backward_bytes", s.scratch_backward.value},
          {"reads_input", s.reads_input},
          {"levels", std::move(levels)},
          {"ops", std::move(ops)},
          {"outside_bytes", outside.value}};
}

inline trace::operator_facts parse_operator(json_field const& f) {
  f.allow_only({"name",
                "forward_ns",
                "backward_ns",
                "scratch_peak_bytes",
                "saved_bytes",
                "delta_before_bytes"});
  auto const or_none = [&](char const* name) {
    auto const given = f.find(name);
    return given ? read_bytes(*given) : bytes{};
  };
  return {.name = text(f.at("name").string()),
          .forward = read_nanoseconds(f.at("forward_ns")),
          .backward = read_nanoseconds(f.at("backward_ns")),
          .scratch_peak = read_bytes(f.at("scratch_peak_bytes")),
          .saved = or_none("saved_bytes"),
          .delta_before = or_none("delta_before_bytes")};
}

inline trace::save_level parse_level(json_field const& f) {
  f.allow_only(
      {"name", "saved_bytes", "rebuilt_bytes", "scratch_bytes", "reads_input", "rebuild_ns"});
  return {.name = text(f.at("name").string()),
          .saved = read_bytes(f.at("saved_bytes")),
          .rebuilt = read_bytes(f.at("rebuilt_bytes")),
          .scratch = read_bytes(f.at("scratch_bytes")),
          .reads_input = f.at("reads_input").boolean(),
          .rebuild = read_nanoseconds(f.at("rebuild_ns"))};
}

inline trace::block_shape parse_shape(json_field const& f) {
  f.allow_only({"name",
                "pinned",
                "forward_ns",
                "backward_ns",
                "input_bytes",
                "output_bytes",
                "saved_bytes",
                "scratch_forward_bytes",
                "scratch_backward_bytes",
                "reads_input",
                "levels",
                "ops",
                "outside_bytes"});
  auto const pinned = f.find("pinned");
  trace::block_shape out{
      .name = text(f.at("name").string()),
      .pinned = pinned ? static_cast<trace::pin>(1 + pinned->choice({"keep", "checkpoint", "swap"}))
                       : trace::pin::free,
      .forward = read_nanoseconds(f.at("forward_ns")),
      .backward = read_nanoseconds(f.at("backward_ns")),
      .input = read_bytes(f.at("input_bytes")),
      .output = read_bytes(f.at("output_bytes")),
      .saved = read_bytes(f.at("saved_bytes")),
      .scratch_forward = read_bytes(f.at("scratch_forward_bytes")),
      .scratch_backward = read_bytes(f.at("scratch_backward_bytes")),
      .reads_input = f.at("reads_input").boolean()};
  if (auto const levels = f.find("levels")) {
    for (json_field const& l : levels->items(trace::most_levels)) {
      out.levels.push_back(parse_level(l));
    }
  }
  for (json_field const& o : f.at("ops").items(1U << 16U)) {
    out.operators.push_back(parse_operator(o));
  }
  return out;
}

/// Elements stay below 2^56, so that no sum of a few tensors' bytes overflows.
inline std::vector<std::uint64_t> parse_extents(json_field const& f) {
  std::vector<std::uint64_t> out;
  std::uint64_t elements = 1;
  for (json_field const& extent : f.items(4)) {
    out.push_back(extent.integer(0, most_bytes));
    if (out.back() != 0 && elements > most_bytes / out.back()) {
      f.fail("has more than 2^56 elements");
    }
    elements *= std::max<std::uint64_t>(out.back(), 1);
  }
  return out;
}

inline model::parameter parse_parameter(json_field const& f, std::size_t blocks) {
  f.allow_only({"name", "shape", "dtype", "trainable", "decay", "learning_rate_scale", "uses"});
  model::parameter out{.name = text(f.at("name").string()),
                       .shape = parse_extents(f.at("shape")),
                       .type = read_dtype(f.at("dtype")),
                       .trainable = f.at("trainable").boolean(),
                       .decay = f.at("decay").boolean()};
  if (auto const scale = f.find("learning_rate_scale")) {
    out.learning_rate_scale = static_cast<float>(
        scale->number(0, static_cast<double>(std::numeric_limits<float>::max())));
  }
  json_field const uses = f.at("uses");
  for (json_field const& use : uses.items(blocks)) {
    auto const b = make_id<block_id>(use.integer(0, blocks - 1));
    if (!out.uses.empty() && b <= out.uses.back()) {
      uses.fail("must ascend");
    }
    out.uses.push_back(b);
  }
  if (out.uses.empty()) {
    uses.fail("must name at least one block");
  }
  return out;
}

/// Members that repeat the job's must agree with it.
inline void check_repeats(json_field const& top, trace::trace const& t) {
  if (read_dtype(top.at("dtype")) != t.job.type) {
    top.at("dtype").fail("must be the job's dtype");
  }
  top.at("micro_batch").integer(t.job.micro_batch, t.job.micro_batch);
  top.at("sequence").integer(t.job.sequence, t.job.sequence);
  if (auto const f = top.find("fingerprint"); f && f->hex() != trace::fingerprint(t)) {
    f->fail(
        "doesn't belong to the rest of the file, which was changed; for a what-if question "
        "remove the member");
  }
}

}  // namespace detail

inline json to_json(trace::trace const& t) {
  json parameters = json::array();
  for (model::parameter const& p : t.parameters) {
    parameters.push_back(detail::to_json(p));
  }
  json blocks = json::array();
  for (shape_id const s : t.blocks) {
    blocks.push_back(s.value);
  }
  json shapes = json::array();
  for (trace::block_shape const& s : t.shapes) {
    shapes.push_back(detail::to_json(s, t.outside));
  }
  return {{"protrain", "trace"},
          {"version", 1},
          {"source", trace::name_of(t.from)},
          {"fingerprint", hex16(trace::fingerprint(t))},
          {"job", to_json(t.job)},
          {"parameters", std::move(parameters)},
          {"dtype", name_of(t.job.type)},
          {"micro_batch", t.job.micro_batch},
          {"sequence", t.job.sequence},
          {"batch_bytes", t.batch.value},
          {"blocks", std::move(blocks)},
          {"shapes", std::move(shapes)}};
}

/// Times that aren't whole nanoseconds are exact to the picosecond up to half an hour.
inline trace::trace parse_trace(json_field const& top) {
  check_head(top, "trace");
  top.allow_only({"protrain",
                  "version",
                  "source",
                  "fingerprint",
                  "job",
                  "parameters",
                  "dtype",
                  "micro_batch",
                  "sequence",
                  "batch_bytes",
                  "blocks",
                  "shapes"});
  trace::trace out{.from = static_cast<trace::source>(
                       top.at("source").choice({"analytic", "dry_run", "measured"})),
                   .job = parse_job(top.at("job")),
                   .batch = detail::read_bytes(top.at("batch_bytes"))};
  for (json_field const& f : top.at("shapes").items(1U << 20U)) {
    out.shapes.push_back(detail::parse_shape(f));
    bytes const outside = detail::read_bytes(f.at("outside_bytes"));
    out.outside = std::max(out.outside, outside);
  }
  json_field const blocks = top.at("blocks");
  if (out.shapes.empty()) {
    top.at("shapes").fail("must have at least one shape");
  }
  for (json_field const& f : blocks.items(1U << 20U)) {
    out.blocks.push_back(make_id<shape_id>(f.integer(0, out.shapes.size() - 1)));
  }
  if (out.blocks.empty()) {
    blocks.fail("must have at least one block");
  }
  std::uint64_t elements = 0;
  for (json_field const& f : top.at("parameters").items(1U << 24U)) {
    out.parameters.push_back(detail::parse_parameter(f, out.blocks.size()));
    elements += model::elements(out.parameters.back());
    if (elements > detail::most_bytes) {
      f.at("shape").fail("brings the model above 2^56 elements");
    }
  }
  detail::check_repeats(top, out);
  return out;
}

inline trace::trace read_trace(std::string const& path) {
  json_document const file = read_json(path);
  return parse_trace(file.top());
}

inline void write_trace(std::string const& path, trace::trace const& t) {
  write_file(path, to_json(t).dump(1) + "\n");
}

}  // namespace protrain::inline v0::io
