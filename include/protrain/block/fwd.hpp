// SPDX-License-Identifier: Apache-2.0
#pragma once
// Forward declarations, enough to declare a block's functions in a header of your own.

#include "protrain/core/config.hpp"

namespace protrain::inline v0::block {

class block_builder;
class dropped_at;
class level_ref;
class scope;
struct extents;
struct tensor_view;
struct parameter_ref;
struct batch_ref;
struct block_entry;
struct frame;
struct table;

}  // namespace protrain::inline v0::block

namespace protrain::inline v0 {
using block::batch_ref;
using block::block_builder;
using block::dropped_at;
using block::extents;
using block::level_ref;
using block::parameter_ref;
using block::scope;
using block::tensor_view;
}  // namespace protrain::inline v0
