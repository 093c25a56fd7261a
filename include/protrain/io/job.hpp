// SPDX-License-Identifier: Apache-2.0
#pragma once
// The job inside JSON files.

#include "protrain/io/json.hpp"
#include "protrain/model/job.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

namespace protrain::inline v0::io {

namespace detail {

/// fp32 as the double that prints shortest and reads back as the same fp32.
inline double shortest_double(float x) {
  char digits[32] = {};
  auto const written = std::to_chars(std::begin(digits), std::end(digits), x);
  double out = 0;
  std::from_chars(std::begin(digits), written.ptr, out);
  return out;
}

/// The position of a name in `choices` is the enumerator.
inline dtype read_dtype(json_field const& f) {
  constexpr dtype types[] = {
      dtype::f32, dtype::bf16, dtype::f16, dtype::f64, dtype::i32, dtype::u8};
  return types[f.choice({name_of(dtype::f32),
                         name_of(dtype::bf16),
                         name_of(dtype::f16),
                         name_of(dtype::f64),
                         name_of(dtype::i32),
                         name_of(dtype::u8)})];
}

inline model::state_format read_state(json_field const& f) {
  using model::state_format;
  constexpr state_format formats[] = {
      state_format::fp32, state_format::split_master, state_format::separate_master};
  return formats[f.choice({name_of(formats[0]), name_of(formats[1]), name_of(formats[2])})];
}

/// 1 where a file doesn't name it.
inline float read_loss_scale(json_field const& top) {
  auto const field = top.find("loss_scale");
  return field ? static_cast<float>(
                     field->number(0, static_cast<double>(std::numeric_limits<float>::max())))
               : 1.0F;
}

}  // namespace detail

inline json to_json(model::job const& j) {
  json out = {{"micro_batch", j.micro_batch},
              {"sequence", j.sequence},
              {"accumulate", j.accumulate},
              {"world", j.world},
              {"dtype", name_of(j.type)},
              {"state", name_of(j.state)},
              {"clip", detail::shortest_double(j.clip)},
              {"skip", j.skip},
              {"seed", j.seed},
              {"dropout", detail::shortest_double(j.dropout)},
              {"loss_scale", detail::shortest_double(j.loss_scale)}};
  if (j.debug) {
    out["debug"] = true;
  }
  return out;
}

inline model::job parse_job(json_field const& top) {
  top.allow_only({"micro_batch",
                  "sequence",
                  "accumulate",
                  "world",
                  "dtype",
                  "state",
                  "clip",
                  "skip",
                  "seed",
                  "dropout",
                  "loss_scale",
                  "debug"});
  constexpr std::uint64_t most = std::uint64_t{1} << 24U;
  auto const debug = top.find("debug");
  return {.micro_batch = top.at("micro_batch").integer(1, most),
          .sequence = top.at("sequence").integer(1, most),
          .accumulate = top.at("accumulate").integer(1, most),
          .world = top.at("world").integer(1, most),
          .type = detail::read_dtype(top.at("dtype")),
          .state = detail::read_state(top.at("state")),
          .clip = static_cast<float>(
              top.at("clip").number(0, static_cast<double>(std::numeric_limits<float>::max()))),
          .skip = top.at("skip").boolean(),
          .seed = top.at("seed").integer(0, std::numeric_limits<std::uint64_t>::max()),
          .dropout = static_cast<float>(top.at("dropout").number(0, 1)),
          .loss_scale = detail::read_loss_scale(top),
          .debug = debug && debug->boolean()};
}

}  // namespace protrain::inline v0::io
