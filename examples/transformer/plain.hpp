// SPDX-License-Identifier: Apache-2.0
#pragma once
// Training as a plain loop: the same blocks and the same arithmetic, without planner, engine or
// arena. Every tensor has heap memory of its own. What a plan computes must equal this in bits.

#include "examples/transformer/plain_state.hpp"
#include "protrain/block/standalone.hpp"
#include "protrain/optim/accumulate.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/master.hpp"
#include "protrain/optim/norm.hpp"
#include "protrain/optim/scale.hpp"
#include "protrain/optim/update.hpp"
#include "protrain/runtime/batch.hpp"
#include "protrain/runtime/loss.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace transformer {
namespace pt = protrain;

/// Trains a table of blocks in any dtype and state format. Several ranks are loops too: a step's
/// batch then holds micro-batches in order, every rank's in each.
class plain_trainer {
 public:
  plain_trainer(pt::block::table model, pt::model::job const& job, pt::optim::adamw rule = {})
      : model_(std::move(model)), job_(job), rule_(rule), blocks_(model_, job) {
    for (pt::model::parameter const& p : model_.parameters) {
      states_.emplace_back(pt::model::elements(p), job.state);
    }
  }

  /// `load(parameter, values)` fills the fp32 values of one parameter.
  template <class Load>
  void initialise(Load const& load) {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      std::vector<float> values(states_[i].m.size());
      load(model_.parameters[i], std::span<float>(values));
      with_masters(i, [&](auto const& masters) {
        for (std::size_t k = 0; k < values.size(); ++k) {
          masters.store(k, values[k]);
        }
      });
    }
  }

  /// The fp32 (master) values of one parameter.
  std::vector<float> read(pt::parameter_id id) {
    std::vector<float> out(states_[id.index()].m.size());
    with_masters(id.index(), [&](auto const& masters) {
      for (std::size_t k = 0; k < out.size(); ++k) {
        out[k] = masters.load(k);
      }
    });
    return out;
  }

  pt::runtime::step_result step(pt::runtime::batch const& data,
                                pt::runtime::step_options const& options) {
    std::vector<float> losses;
    for (std::uint64_t i = 0; i < job_.accumulate * job_.world; ++i) {
      blocks_.begin({.step = steps_,
                     .first_sample = i * job_.micro_batch,
                     .loss_scale = pt::runtime::loss_scale(data.targets(), job_.loss_scale)});
      for (auto const& t : data.tensors()) {
        pt::tensor_view const to = blocks_.batch(t.name);
        std::memcpy(to.data, static_cast<std::byte const*>(t.data) + i * to.bytes(), to.bytes());
      }
      blocks_.forward();
      losses.insert(losses.end(), blocks_.losses().begin(), blocks_.losses().end());
      for (std::size_t b = model_.blocks.size(); b-- > 0;) {
        blocks_.backward(pt::make_id<pt::block_id>(b));
        collect(b, i % job_.world);
      }
    }
    ++steps_;
    float const norm = update(options.learning_rate);
    return {.step = steps_,
            .loss = pt::runtime::mean_loss(losses, data.targets()),
            .grad_norm = norm,
            .grad_norm_clipped = norm * pt::optim::clip_factor(norm, job_.clip),
            .tokens = pt::model::tokens_per_step(job_)};
  }

 private:
  /// Calls f with the masters of parameter `i`.
  template <class F>
  void with_masters(std::size_t i, F const& f) {
    pt::tensor_view const value = blocks_.value(pt::make_id<pt::parameter_id>(i));
    states_[i].with_masters(value, model_.parameters[i].trainable, f);
  }

  /// Adds the contributions of block `b`, one for each parameter it uses: over ranks first, rounded
  /// to their dtype, then to the step's sum.
  void collect(std::size_t b, std::uint64_t rank) {
    auto const& used = model_.blocks[b].parameters;
    for (std::uint32_t k = 0; k < used.size(); ++k) {
      auto const from = blocks_.contribution(pt::make_id<pt::block_id>(b), {k});
      plain_state& to = states_[used[k].id.index()];
      with_type(job_.type, [&]<class T>(T*) {
        T* const g = from ? from.as<T>() : nullptr;
        if (g != nullptr && sums_.add({b, k}, g, to.m.size(), rank, job_.world)) {
          to.seen ? pt::optim::add(to.gradient.data(), g, to.m.size())
                  : pt::optim::store(to.gradient.data(), g, to.m.size());
          to.seen = true;
        }
      });
    }
  }

  float update(double learning_rate) {
    pt::optim::exact_sum squares;
    for (plain_state const& s : states_) {
      pt::optim::add_squares(squares, s.gradient.data(), s.seen ? s.m.size() : 0);
    }
    float const inverse = 1 / job_.loss_scale;
    float const stored = pt::optim::norm(squares);
    float const scale = pt::optim::gradient_scale(inverse, stored, job_.clip);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      plain_state& s = states_[i];
      pt::model::parameter const& p = model_.parameters[i];
      auto const with = rule_.prepare(
          learning_rate * p.learning_rate_scale, static_cast<std::int64_t>(steps_), p.decay);
      std::size_t const n = p.trainable ? s.m.size() : 0;
      s.seen = false;
      with_masters(i, [&](auto const& masters) {
        pt::optim::update_range<pt::optim::adamw>(
            with, scale, s.gradient.data(), masters, {s.m.data(), s.v.data()}, n);
      });
    }
    return inverse * stored;
  }

  pt::block::table model_;
  pt::model::job job_;
  pt::optim::adamw rule_;
  pt::block::standalone blocks_;
  std::vector<plain_state> states_;
  rank_sums sums_;
  std::uint64_t steps_ = 0;
};

}  // namespace transformer
