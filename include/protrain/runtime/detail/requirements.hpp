// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the compiler says where an engine can't be made of a device, a communicator and an
// optimizer, or a manager of a model: the law and the cure.

#include "protrain/block/stack.hpp"
#include "protrain/comm/communicator.hpp"
#include "protrain/device/device.hpp"
#include "protrain/optim/update_rule.hpp"

#include <type_traits>

namespace protrain::inline v0::runtime::detail {

template <class Device, class Comm, class Rule>
constexpr bool can_make_engine() {
  static_assert(device::device<Device>,
                "engine: a device has the operations of device::device and keeps the laws in "
                "protrain/device/device.hpp; ready-made: device::host_device, serial_device");
  static_assert(comm::communicator<Comm>,
                "engine: a communicator has the operations of comm::communicator and keeps the "
                "laws in protrain/comm/communicator.hpp; ready-made: comm::self, threads");
  static_assert(optim::update_rule<Rule>,
                "engine: an optimizer is an optim::update_rule: policy_tag, step_type, "
                "state_tensors, prepare and a noexcept element, whose laws are in "
                "protrain/optim/update_rule.hpp; ready-made: optim::adamw, sgd");
  if constexpr (optim::update_rule<Rule>) {
    static_assert(Rule::state_tensors <= 2,
                  "engine: state formats hold two fp32 tensors per parameter; use a rule with at "
                  "most two");
  }
  return true;
}

template <class T>
inline constexpr bool is_stack = false;
template <class... Items>
inline constexpr bool is_stack<block::stack<Items...>> = true;

/// A stack, kept or moved from.
template <class T>
concept stack_like = is_stack<std::remove_cvref_t<T>>;

template <class Model>
constexpr bool can_manage() {
  static_assert(stack_like<Model>,
                "memory_manager: the model is a protrain::stack of blocks: "
                "stack model{first_block, repeat(12, layer), last_block}");
  return true;
}

}  // namespace protrain::inline v0::runtime::detail
