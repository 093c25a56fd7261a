// SPDX-License-Identifier: Apache-2.0
#pragma once
// Contract violations as exceptions, the message of a block_error, and a block of two lambdas.

#include "protrain/block/block_type.hpp"
#include "protrain/core/config.hpp"

#include <string>

namespace protrain::test {

struct refused {
  std::string message;
};

/// While it lives, a contract violation throws `refused`.
class throwing_contracts {
 public:
  throwing_contracts()
      : old_(set_violation_handler([](violation const& v) { throw refused{v.message}; })) {}
  throwing_contracts(throwing_contracts const&) = delete;
  throwing_contracts(throwing_contracts&&) = delete;
  throwing_contracts& operator=(throwing_contracts const&) = delete;
  throwing_contracts& operator=(throwing_contracts&&) = delete;
  ~throwing_contracts() { set_violation_handler(old_); }

 private:
  violation_handler old_;
};

/// The message of what `call` refuses; empty if it refuses nothing.
template <class Call>
std::string refusal(Call const& call) {
  throwing_contracts const guard;
  try {
    call();
  } catch (refused const& r) {
    return r.message;
  } catch (block_error const& e) {
    return e.what();
  }
  return "";
}

/// A block that only describes itself.
template <class Describe>
auto described(Describe describe) {
  return make_block(
      std::move(describe),
      [](scope&, tensor_view, tensor_view) {},
      [](scope&, tensor_view, tensor_view, tensor_view) {});
}

}  // namespace protrain::test
