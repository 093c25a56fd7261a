// SPDX-License-Identifier: Apache-2.0
#pragma once
// Turns broken contracts into exceptions, so that tests can see them.

#include "protrain/core/config.hpp"

#include <stdexcept>

namespace protrain::test {

struct contract_broken : std::logic_error {
  using std::logic_error::logic_error;
};

/// While one lives, a broken contract throws contract_broken.
class throwing_contracts {
 public:
  throwing_contracts()
      : old_(set_violation_handler([](violation const& v) { throw contract_broken(v.message); })) {}
  throwing_contracts(throwing_contracts const&) = delete;
  throwing_contracts& operator=(throwing_contracts const&) = delete;
  ~throwing_contracts() { set_violation_handler(old_); }

 private:
  violation_handler old_;
};

}  // namespace protrain::test
