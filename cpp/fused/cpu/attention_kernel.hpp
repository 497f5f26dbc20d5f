// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// Sequences [begin, end) of `models * sequences`. `scratch`: attention_scratch(length, head_dim) elements.
DNNSUITE_KERNEL(attention_forward, const AttentionArguments& args, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(attention_backward, const AttentionArguments& args, int64_t begin, int64_t end, void* scratch)

/// Three tiles [L, L], the dropout factors, and eight [L, d] or [d, L] operands, each padded to whole vectors.
constexpr int64_t attention_scratch(int64_t length, int64_t head_dim) {
    const int64_t l = (length + 15) / 16 * 16, d = (head_dim + 15) / 16 * 16;
    return 3 * length * l + length * length + 512 + 8 * (l + 16) * (d + 16);
}

}  // namespace dnnsuite::fused
