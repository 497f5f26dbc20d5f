// SPDX-License-Identifier: MIT
#pragma once

#include "fused/cpu/isa.hpp"
#include "fused/norm_arguments.hpp"

namespace dnnsuite::fused {

/// Samples [begin, end) of models * batch. A channel has 16 elements or more. Backward writes each sample's part of the
/// parameters' gradients, `sums` [models * batch, 2, C].
DNNSUITE_KERNEL(group_norm_forward, const GroupNormArguments& args, int64_t begin, int64_t end)
DNNSUITE_KERNEL(group_norm_backward, const GroupNormArguments& args, int64_t begin, int64_t end, void* sums)

}  // namespace dnnsuite::fused
