// SPDX-License-Identifier: Apache-2.0
// An engine says what its device, communicator and optimizer lack, a manager that a block is no
// model. Both ask in their first line; to make one here would take most of the time. Measuring takes
// a model too, and a batch of named tensors.
// expect: engine: a device has the operations of device::device .* protrain/device/device.hpp
// and: engine: a communicator has the operations of comm::communicator
// and: engine: an optimizer is an optim::update_rule
// and: engine: state formats hold two fp32 tensors per parameter
// and: memory_manager: the model is a protrain::stack of blocks
// and: call to .measure\(.*const block_alone&|block_alone. does not satisfy .has_entries.
// and: call to .measure\(.*const no_batch&|no_batch. does not satisfy .batch_like.

#include "protrain/comm/self.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/optim/sgd.hpp"
#include "protrain/profile/measure.hpp"
#include "protrain/runtime/batch.hpp"
#include "protrain/runtime/detail/requirements.hpp"

#include <array>
#include <concepts>
#include <cstddef>
#include <span>

#if FAULT_ON
#define WRONG(right, wrong) wrong
#else
#define WRONG(right, wrong) right
#endif

using namespace protrain;

struct block_alone {
  void describe(block_builder&) const {}
  void forward(scope&, tensor_view, tensor_view) const {}
  void backward(scope&, tensor_view, tensor_view, tensor_view) const {}
};

struct no_batch {
  std::span<int const> tensors() const;
};
struct no_device {
  void submit() {}
};
struct no_communicator {};
struct no_rule {};
struct greedy : optim::sgd {
  static constexpr std::size_t state_tensors = 3;
  static void element(step_type const&, float, float, float&, std::array<float, 3>&) noexcept {}
  bool operator==(greedy const&) const = default;
};

using host = device::host_device;
using runtime::detail::can_make_engine;
static_assert(can_make_engine<WRONG(host, no_device), comm::self, optim::sgd>());
static_assert(can_make_engine<host, WRONG(comm::self, no_communicator), optim::sgd>());
static_assert(can_make_engine<host, comm::self, WRONG(optim::sgd, no_rule)>());
static_assert(can_make_engine<host, comm::self, WRONG(optim::sgd, greedy)>());
static_assert(runtime::detail::can_manage<WRONG(stack<block_alone>&, block_alone const&)>());

void measure(host& d,
             model::job const& job,
             block::table const& table,
             WRONG(stack<block_alone>, block_alone) const& model,
             WRONG(runtime::batch, no_batch) const& data) {
  using of_model = decltype(profile::measure(d, model, job));
  using of_batch = decltype(profile::measure(d, table, job, data));
  static_assert(std::same_as<of_model, of_batch>);
}
