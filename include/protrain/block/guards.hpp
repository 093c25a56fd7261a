// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a debugging job's blocks get: poison in memory that they must write before they read,
// canaries behind every tensor, and a look at what they made. Memory is addressed by the host.

#include "protrain/block/error.hpp"
#include "protrain/block/non_finite.hpp"
#include "protrain/block/tensor_view.hpp"
#include "protrain/core/canary.hpp"
#include "protrain/core/math.hpp"
#include "protrain/model/job.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::block {

/// The tensors of the pass that runs. One owner, one pass at a time; off unless the job debugs.
class guards {
 public:
  explicit guards(model::job const& j)
      : on_(j.debug), skips_(j.skip), behind_(model::guard_bytes(j)) {}

  bool on() const noexcept { return on_; }
  /// Whether the job expects gradients that aren't finite: it skips such steps.
  bool skips() const noexcept { return skips_; }

  /// A new pass: nothing is watched.
  void begin() {
    tensors_.clear();
    scratch_.clear();
    damage_.clear();
  }
  /// Fills a tensor that the pass must write first with poison, and puts canaries behind it.
  void hand_out(std::string what, tensor_view const& t) {
    if (t && t.bytes() > 0) {
      poison(t);
      watch(std::move(what), t);
    }
  }
  /// Only canaries: gradients, which are zero.
  void watch(std::string what, tensor_view const& t) {
    if (t && t.bytes() > 0) {
      fill_canary(t.raw() + t.bytes(), space_behind(t));
      tensors_.push_back({std::move(what), t.raw(), t.bytes()});
    }
  }
  /// Canaries that an earlier pass put there: saved tensors in backward.
  void watch_again(std::string what, tensor_view const& t) {
    if (t && t.bytes() > 0) {
      tensors_.push_back({std::move(what), t.raw(), t.bytes()});
    }
  }
  void hand_out_scratch(tensor_view const& t) {
    if (t && t.bytes() > 0) {
      poison(t);
      fill_canary(t.raw() + t.bytes(), space_behind(t));
      scratch_.push_back({"its scratch", t.raw(), t.bytes()});
    }
  }

  /// Scratch tensors that are watched: an operator returns those after its mark.
  std::size_t mark() const noexcept { return scratch_.size(); }
  void drop(std::size_t mark) { scratch_.resize(mark); }

  /// Looks at all canaries at the end of an operator, or, without a name, of the pass. The first
  /// damage stays.
  void check(std::string_view op = {}) {
    for (auto const* list : {&scratch_, &tensors_}) {
      for (guarded const& g : *list) {
        canary_damage const d = damage_of(g.data + g.bytes, granules(g.bytes) + behind_ - g.bytes);
        if (d.bytes() > 0 && damage_.empty()) {
          damage_ = (op.empty() ? "" : "operator " + detail::in_quotes(op) + " ") + "wrote " +
                    std::to_string(d.bytes()) + " B past " + g.what;
        }
      }
    }
  }
  /// "operator 'mlp' wrote 64 B past its scratch", or empty.
  std::string const& damage() const noexcept { return damage_; }

 private:
  struct guarded {
    std::string what{};
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
  };
  std::uint64_t space_behind(tensor_view const& t) const {
    return granules(t.bytes()) + behind_ - t.bytes();
  }

  bool on_;
  bool skips_;
  std::uint64_t behind_;
  std::vector<guarded> tensors_{};
  std::vector<guarded> scratch_{};  // of the operators that run, in order
  std::string damage_{};
};

}  // namespace protrain::inline v0::block
