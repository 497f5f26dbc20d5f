// SPDX-License-Identifier: MIT
#pragma once

#include "fused/cpu/isa.hpp"
#include "fused/norm_arguments.hpp"

namespace dnnsuite::fused {

/// Samples [begin, end) of models * batch. A contiguous channel has 16 elements or more. Backward writes each sample's
/// part of the parameters' gradients, `sums` [models * batch, 2, C].
DNNSUITE_KERNEL(group_norm_forward, const GroupNormArguments& args, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(group_norm_backward, const GroupNormArguments& args, int64_t begin, int64_t end, void* sums,
                void* scratch)

/// Numbers of `scratch`: eleven for each column, and what puts them at the start of a line.
inline int64_t group_norm_scratch(const GroupNormArguments& args) {
    return args.columns > 0 ? 11 * (args.columns + 16) + 8 : 0;
}

}  // namespace dnnsuite::fused
