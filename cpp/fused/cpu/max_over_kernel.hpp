// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// Slices [begin, end) of models * outer. `scratch` holds inner numbers of 4 bytes.
DNNSUITE_KERNEL(max_over, const MaxArguments& args, int64_t begin, int64_t end, void* scratch)

}  // namespace dnnsuite::fused
