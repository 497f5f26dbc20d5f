// SPDX-License-Identifier: MIT
#pragma once

#include "fused/cpu/isa.hpp"
#include "fused/norm_arguments.hpp"

namespace dnnsuite::fused {

/// Tasks [begin, end) of `rows.tasks()`.
DNNSUITE_KERNEL(rms_norm_forward, const RmsNormArguments& args, int64_t begin, int64_t end)
DNNSUITE_KERNEL(rms_norm_backward, const RmsNormArguments& args, int64_t begin, int64_t end)

}  // namespace dnnsuite::fused
