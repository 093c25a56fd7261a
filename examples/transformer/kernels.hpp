// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels of the example transformers: pure functions over pointers and sizes. Results depend on
// input bits, shape and random key only; every tensor and workspace is aligned to 256 bytes.

#include "examples/transformer/attention.hpp"
#include "examples/transformer/cross_entropy.hpp"
#include "examples/transformer/dropout.hpp"
#include "examples/transformer/embedding.hpp"
#include "examples/transformer/gelu.hpp"
#include "examples/transformer/gemm.hpp"
#include "examples/transformer/gpt2_block.hpp"
#include "examples/transformer/gpt2_block_types.hpp"
#include "examples/transformer/gpt2_head.hpp"
#include "examples/transformer/layer_norm.hpp"
#include "examples/transformer/linear.hpp"
#include "examples/transformer/llama_block.hpp"
#include "examples/transformer/llama_block_types.hpp"
#include "examples/transformer/llama_head.hpp"
#include "examples/transformer/rms_norm.hpp"
#include "examples/transformer/rope.hpp"
#include "examples/transformer/simd.hpp"
#include "examples/transformer/swiglu.hpp"
#include "examples/transformer/tensor_sizes.hpp"
#include "examples/transformer/vocabulary_loss.hpp"
