// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// Tasks [begin, end) of `rows.tasks()`. `scratch` holds layer_norm_scratch(columns) elements of the dtype.
DNNSUITE_KERNEL(layer_norm_forward, const LayerNormArguments& args, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(layer_norm_backward, const LayerNormArguments& args, int64_t begin, int64_t end, void* scratch)

constexpr int64_t layer_norm_scratch(int64_t columns) { return 4 * columns + 512; }

}  // namespace dnnsuite::fused
