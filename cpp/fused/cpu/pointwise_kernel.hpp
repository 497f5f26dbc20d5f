// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// Tasks [begin, end) of `rows.tasks()`. `scratch` holds pointwise_scratch(columns) elements of the dtype.
DNNSUITE_KERNEL(pointwise_forward, const PointwiseArguments& args, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(pointwise_backward, const PointwiseArguments& args, int64_t begin, int64_t end, void* scratch)

constexpr int64_t pointwise_scratch(int64_t columns) { return 2 * columns + 512; }

}  // namespace dnnsuite::fused
