// SPDX-License-Identifier: Apache-2.0
#pragma once
// One pass over one block under the eyes of `guards`: what an owner of memory does around it.

#include "protrain/block/error.hpp"
#include "protrain/block/frame.hpp"
#include "protrain/block/guards.hpp"
#include "protrain/block/non_finite.hpp"
#include "protrain/block/saved.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace protrain::inline v0::block {

/// Made before the pass's scope, finished after it; nothing unless the frame has guards. `out` is
/// y, or dx in backward; absent in a rebuild.
class guarded_pass {
 public:
  guarded_pass(frame const& f, tensor_view const& out) : f_(f), out_(out) {
    if (f.guards == nullptr) {
      return;
    }
    f.guards->begin();
    f.guards->hand_out(backward() ? "dx" : "y", out);
    for (std::size_t k = 0; backward() && k < f.gradients.size(); ++k) {
      f.guards->watch(gradient_name(k), gradient(k));
    }
    bool const after_forward = backward() || f.pass == pass::rebuild;
    for (std::size_t k = 0; after_forward && k < f.slots->rows().size(); ++k) {
      saved_tensor const& row = f.slots->rows()[k];
      if (!row.input && (backward() || !row.dropped)) {
        f.guards->watch_again(
            "saved " + detail::in_quotes(row.name.text()),
            {(row.dropped ? f.dropped : f.saved).data + row.offset, row.type, row.shape});
      }
    }
  }

  /// Throws block_error if something was written too far, or the pass made the first number that
  /// isn't finite.
  void finish() const {
    if (f_.guards == nullptr) {
      return;
    }
    f_.guards->check();
    if (!f_.guards->damage().empty()) {
      fail("memory", f_.guards->damage());
    }
    if (f_.pass == pass::rebuild) {
      return;
    }
    if (!backward()) {
      look_at("y", out_);
      look_at("the losses", {f_.losses, dtype::f32, extents(f_.samples)});
    } else if (!f_.guards->skips()) {
      look_at("dx", out_);
      for (std::size_t k = 0; k < f_.gradients.size(); ++k) {
        look_at(gradient_name(k), gradient(k));
      }
    }
  }

 private:
  bool backward() const noexcept { return f_.pass == pass::backward; }

  tensor_view gradient(std::size_t k) const {
    entry_parameter const& p = f_.entry->parameters[k];
    return p.facts.at(p.trainable ? f_.gradients[k] : nullptr);
  }
  std::string gradient_name(std::size_t k) const {
    return "gradient " + detail::in_quotes(f_.entry->parameters[k].name);
  }

  void look_at(std::string const& what, tensor_view const& t) const {
    if (auto const at = first_non_finite(t)) {
      fail(what,
           "made the first number that is not finite: " + what + ", element " +
               std::to_string(*at) + reason());
    }
  }

  /// What the pass was given, if that explains it.
  std::string reason() const {
    for (std::size_t k = 0; k < f_.values.size(); ++k) {
      entry_parameter const& p = f_.entry->parameters[k];
      if (auto const at = first_non_finite(p.facts.at(f_.values[k]))) {
        return "; parameter " + detail::in_quotes(p.name) + " has one in element " +
               std::to_string(*at);
      }
    }
    if (auto const at = first_poison(f_.x)) {
      return "; element " + std::to_string(*at) + " of x was never written by the block before";
    }
    return "; it may have read scratch, saved tensors or outputs that it had not written";
  }

  [[noreturn]] void fail(std::string const& subject, std::string const& what) const {
    char const* const made = f_.pass == pass::rebuild ? "rebuild)" : "forward)";
    throw block_error(f_.entry->name,
                      subject,
                      what + " (block " + std::to_string(f_.random.block) + ", " +
                          (backward() ? "backward)" : made));
  }

  frame const& f_;
  tensor_view out_;
};

}  // namespace protrain::inline v0::block
