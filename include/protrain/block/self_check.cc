// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/block/block_type.hpp>
#include <protrain/block/builder.hpp>
#include <protrain/block/check.hpp>
#include <protrain/block/detail/lone_block.hpp>
#include <protrain/block/detail/scope.hpp>
#include <protrain/block/detail/table_builder.hpp>
#include <protrain/block/dry_pass.hpp>
#include <protrain/block/elements.hpp>
#include <protrain/block/entry.hpp>
#include <protrain/block/error.hpp>
#include <protrain/block/frame.hpp>
#include <protrain/block/fwd.hpp>
#include <protrain/block/saved.hpp>
#include <protrain/block/scope.hpp>
#include <protrain/block/stack.hpp>
#include <protrain/block/standalone.hpp>
#include <protrain/block/tensor_view.hpp>
#include <protrain/block/block_type.hpp>
#include <protrain/block/builder.hpp>
#include <protrain/block/check.hpp>
#include <protrain/block/detail/lone_block.hpp>
#include <protrain/block/detail/scope.hpp>
#include <protrain/block/detail/table_builder.hpp>
#include <protrain/block/dry_pass.hpp>
#include <protrain/block/elements.hpp>
#include <protrain/block/entry.hpp>
#include <protrain/block/error.hpp>
#include <protrain/block/frame.hpp>
#include <protrain/block/fwd.hpp>
#include <protrain/block/saved.hpp>
#include <protrain/block/scope.hpp>
#include <protrain/block/stack.hpp>
#include <protrain/block/standalone.hpp>
#include <protrain/block/tensor_view.hpp>
