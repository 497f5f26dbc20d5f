// SPDX-License-Identifier: MIT
#pragma once

#include "fused/cpu/isa.hpp"
#include "fused/norm_arguments.hpp"

namespace dnnsuite::fused {

/// Forward: samples [begin, end) of models * batch. Backward: tasks [begin, end), each of some samples of a model; it
/// writes each task's part of the parameters' gradients, `sums` [tasks, 2, C]. A contiguous channel has 16 elements or
/// more.
DNNSUITE_KERNEL(group_norm_forward, const GroupNormArguments& args, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(group_norm_backward, const GroupNormArguments& args, int64_t begin, int64_t end, void* sums,
                void* scratch)

/// Numbers of `scratch`: eleven for each column, and what puts them at the start of a line; contiguous two for each
/// channel.
inline int64_t group_norm_scratch(const GroupNormArguments& args) {
    return args.columns > 0 ? 11 * (args.columns + 16) + 8 : 2 * args.channels;
}

}  // namespace dnnsuite::fused
