// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// Windows of images, channels last: images [count, H, W, C] and patches [count, OH, OW, KH, KW, C].
struct PatchArguments {
    DType dtype;
    int64_t images, channels;
    Window height, width;  // their dilation is 1
    const void* from;
    void* to;
};

/// Rows [begin, end) of the patches of all images.
DNNSUITE_KERNEL(patches, const PatchArguments& args, int64_t begin, int64_t end)
/// Rows [begin, end) of all images, each pixel the sum of what the patches have of it.
DNNSUITE_KERNEL(add_patches, const PatchArguments& args, int64_t begin, int64_t end)

}  // namespace dnnsuite::fused
