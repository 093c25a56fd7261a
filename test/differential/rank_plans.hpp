// SPDX-License-Identifier: Apache-2.0
#pragma once
// The axes along which jobs over several ranks and plans for them are drawn.

#include "examples/transformer/llama.hpp"
#include "examples/transformer/llama_values.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/float16.hpp"
#include "protrain/model/job.hpp"
#include "protrain/model/llama.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/trace/trace.hpp"
#include "test/differential/plans.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/support/pairwise.hpp"
#include "test/support/synthetic.hpp"

#include <cstdint>
#include <type_traits>
#include <vector>

namespace protrain::test {

/// Positions in `choice_row`. Those before `device` decide what every plan must reproduce.
enum class over : std::uint8_t {
  model,
  format,
  ranks,
  accumulate,
  clip,
  dropout,
  between,
  device,
  capacity,
  persist,
  buffers,
  swap,
  checkpoint,
  levels,
  time,
  programs,
  sites,
};
inline std::uint32_t at(choice_row const& row, over axis) {
  return row[static_cast<std::size_t>(axis)];
}

enum class ranked_model : std::uint8_t { synthetic, mlp, gpt2, llama };
enum class ranked_format : std::uint8_t { fp32, split, separate, half };
inline constexpr std::uint64_t rank_counts[] = {1, 2, 3, 5};

inline bool is_transformer(choice_row const& row) {
  return at(row, over::model) >= static_cast<std::uint32_t>(ranked_model::gpt2);
}

/// Every axis, in the order of `over`. Jobs that need the norm, as all in fp16 do, have no updates
/// during backward; transformers have no fp16.
inline covering_array rank_space() {
  auto const pair = [](over a, auto x, over b, auto y) {
    return setting_pair{{static_cast<std::size_t>(a), static_cast<std::uint32_t>(x)},
                        {static_cast<std::size_t>(b), static_cast<std::uint32_t>(y)}};
  };
  return {{{"model", {"synthetic", "mlp", "gpt2", "llama"}},
           {"format", {"fp32", "bf16 split", "bf16 separate", "fp16 separate"}},
           {"ranks", {"1", "2", "3", "5"}},
           {"accumulate", {"1", "3"}},
           {"clip", {"off", "on"}},
           {"dropout", {"off", "on"}},
           {"between", {"nothing", "evaluate", "read", "flush"}},
           {"device", {"in order", "random", "adversarial", "host"}},
           {"chunk", {"small", "best of the grid", "large"}},
           {"persist", {"0", "some", "all"}},
           {"buffers", {"fewest", "one more", "most"}},
           {"swap", {"0", "1", "all"}},
           {"checkpoint", {"0", "some", "all"}},
           {"levels", {"0", "first", "deepest", "mixed"}},
           {"time", {"after backward", "during backward", "defer one", "defer all"}},
           {"micro-batches of a program", {"all", "1", "2"}},
           {"update site", {"cpu", "streamed", "split"}}},
          {pair(over::clip, 1, over::time, time_kind::during_backward),
           pair(over::format, ranked_format::half, over::time, time_kind::during_backward),
           pair(over::model, ranked_model::gpt2, over::format, ranked_format::half),
           pair(over::model, ranked_model::llama, over::format, ranked_format::half)}};
}

/// The row of one rank's axes that says the same of layout and knobs.
inline choice_row plan_row(choice_row const& row) {
  choice_row out(plan_space().axes().size(), 0);
  std::uint32_t sum = 0;
  for (std::uint32_t const value : row) {
    sum += value;
  }
  auto const set = [&](on axis, std::uint32_t value) {
    out[static_cast<std::size_t>(axis)] = value;
  };
  set(on::capacity, at(row, over::capacity));
  set(on::persist, at(row, over::persist));
  set(on::buffers, at(row, over::buffers));
  set(on::swap, at(row, over::swap));
  set(on::checkpoint, at(row, over::checkpoint));
  set(on::levels, at(row, over::levels));
  set(on::assignment, sum / 4 % 2);
  set(on::interval, sum % 3);
  set(on::swap_ahead, sum % 2);
  set(on::gradient_slots, sum / 2 % 2);
  set(on::time, at(row, over::time));
  set(on::programs, at(row, over::programs));
  set(on::placement, sum % 3);
  set(on::eviction, sum / 3 % 3);
  set(on::sites, at(row, over::sites));
  return out;
}

inline model::job ranked_job(choice_row const& row) {
  auto const format = static_cast<ranked_format>(at(row, over::format));
  bool const synthetic = at(row, over::model) == 0;
  return {.micro_batch = 2,
          .sequence = is_transformer(row) ? 16U : 4U,
          .accumulate = at(row, over::accumulate) == 0 ? 1U : 3U,
          .world = rank_counts[at(row, over::ranks)],
          .type = format == ranked_format::fp32   ? dtype::f32
                  : format == ranked_format::half ? dtype::f16
                                                  : dtype::bf16,
          .state = format == ranked_format::fp32    ? model::state_format::fp32
                   : format == ranked_format::split ? model::state_format::split_master
                                                    : model::state_format::separate_master,
          .clip = at(row, over::clip) == 0 ? 0.0F
                  : synthetic              ? 0.5F
                                           : 0.05F,
          .seed = 20240607,
          .dropout = at(row, over::dropout) == 0 ? 0.0F : 0.1F,
          .loss_scale = format == ranked_format::half ? 0x1p8F : 1.0F};
}

inline model::llama_config tiny_llama(double dropout) {
  return {.layers = 3,
          .hidden = 32,
          .heads = 4,
          .key_heads = 2,
          .inner = 96,
          .vocabulary = 256,
          .positions = 32,
          .dropout = dropout};
}

template <class T>
subject ranked_subject_of(ranked_model kind, model::job const& job) {
  if (kind == ranked_model::mlp) {
    return make_subject(make_mlp<T>({.layers = 3, .tied = true}), job, uniform_values(0.4F));
  }
  if constexpr (!std::is_same_v<T, float16>) {
    if (kind == ranked_model::gpt2) {
      transformer::initial_values const values{.config = tiny_gpt2(), .seed = job.seed};
      return make_subject(transformer::make_gpt2<T>(tiny_gpt2()), job, values);
    }
    auto const config = tiny_llama(static_cast<double>(job.dropout));
    return make_subject(
        transformer::make_llama<T>(config), job, transformer::llama_values{config, job.seed});
  }
  PROTRAIN_EXPECT(false, "a transformer in fp16");
  return {};
}

inline subject ranked_subject(choice_row const& row) {
  auto const kind = static_cast<ranked_model>(at(row, over::model));
  model::job const job = ranked_job(row);
  if (kind == ranked_model::synthetic) {
    return make_subject(synthetic_model(synthetic_facts(job)), job, uniform_values(0.5F));
  }
  switch (job.type) {
    case dtype::f32:
      return ranked_subject_of<float>(kind, job);
    case dtype::f16:
      return ranked_subject_of<float16>(kind, job);
    default:
      return ranked_subject_of<bfloat16>(kind, job);
  }
}

inline chunk::layout ranked_layout(choice_row const& row, trace::trace const& t) {
  return layout_of(plan_row(row), t);
}

inline schedule::knobs ranked_knobs(choice_row const& row,
                                    trace::trace const& t,
                                    chunk::layout const& l) {
  return knobs_of(plan_row(row), t, l);
}

}  // namespace protrain::test
