// SPDX-License-Identifier: Apache-2.0
#pragma once
// Index of what users may put in place of the library's own: name, header with its laws, and what
// below test/ checks them. There is nothing to include here; tools/indexes keeps it complete.
//
// Policies of planning. A model is regular (default, copies, ==), silent, and consents to its role
// by `using policy_tag = <tag>`; `policies<>{}.with(model)` puts it into a bundle.
//
//   chunk::placement_policy       placement_tag     chunk/placement.hpp        law/placement.hpp
//   chunk::weighs_benefits        placement_tag     chunk/placement.hpp        law/placement.hpp
//   chunk::sizing_policy          sizing_tag        chunk/sizing.hpp           law/sizing.hpp
//   chunk::eviction_policy        eviction_tag      chunk/eviction.hpp         law/eviction.hpp
//   activation::assignment_policy assignment_tag    activation/assignment.hpp  law/assignment.hpp
//   activation::level_policy      assignment_tag    activation/assignment.hpp  law/assignment.hpp
//   link::bandwidth_policy        bandwidth_tag     link/bandwidth.hpp         law/bandwidth.hpp
//   link::knows_swapping          bandwidth_tag     link/derated.hpp           law/bandwidth.hpp
//   link::knows_contention        bandwidth_tag     link/shared.hpp            law/bandwidth.hpp
//   update::site_policy           site_tag          update/site.hpp            law/update.hpp
//   update::timing_policy         timing_tag        update/timing.hpp          law/update.hpp
//   update::state_format_policy   state_format_tag  update/state_format.hpp    law/state_format.hpp
//
// Execution.
//
//   device::device           device/device.hpp                        law/device.hpp
//   comm::communicator       comm/communicator.hpp                    law/comm.hpp
//   block::block_type        block/block_type.hpp                     law/block.hpp
//   block::rebuilds          block/block_type.hpp                     law/rebuilds.hpp
//   optim::update_rule       update_rule_tag  optim/update_rule.hpp   law/update_rule.hpp
//   optim::master_arrays     optim/master.hpp                         law/master_arrays.hpp
//   optim::gradient_element  optim/arithmetic.hpp                     law/gradient_element.hpp
//
// Traits to specialise, and a function to replace.
//
//   activation::strategy_of      activation/strategy.hpp  unit/block/stack_test.cpp
//   block::element_type          block/tensor_view.hpp    unit/block/tensor_view_test.cpp
//   core::set_violation_handler  core/config.hpp          unit/core/config_test.cpp
//
// Optional operations and statements: of a device (waiting for a limited time, `written`, tasks that
// may use threads, what a profiler may ask for), of a communicator (ranks on this host, whom a
// collective waits for), of an update rule (`vectorised`).
//
//   device::timed_device     device/timed.hpp          law/timed_device.hpp
//   written                  device/device.hpp         compile_fail/device_fail.cpp
//   device::threaded_tasks   device/device.hpp         unit/runtime/cpu_threads_test.cpp
//   profile::stamps_queues   profile/hooks.hpp         law/hooks.hpp
//   profile::counts_outside  profile/hooks.hpp         law/hooks.hpp
//   local_size               comm/communicator.hpp     unit/comm/threads_test.cpp
//   absent                   runtime/detail/watch.hpp  unit/runtime/stall_test.cpp
//   vectorised               optim/update.hpp          unit/optim/vectors_test.cpp
//
// Closed sets: what they accept stands in their headers.
//
//   plan::format_choice          plan/policies.hpp                compile_fail/policies_fail.cpp
//   plan::policy_bundle          plan/policies.hpp                compile_fail/policies_fail.cpp
//   core::stored_float           core/arithmetic.hpp              compile_fail/optim_fail.cpp
//   block::detail::callable      block/block_type.hpp             compile_fail/block_fail.cpp
//   profile::batch_like          profile/measure.hpp              compile_fail/manager_fail.cpp
//   profile::has_entries         profile/measure.hpp              compile_fail/manager_fail.cpp
//   runtime::detail::stack_like  runtime/detail/requirements.hpp  compile_fail/manager_fail.cpp
