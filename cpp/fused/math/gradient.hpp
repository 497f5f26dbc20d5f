// SPDX-License-Identifier: MIT
// Norms of the gradients of each model, in double: they are finite if and only if every float gradient is.
#pragma once

#include "fused/arguments.hpp"

namespace dnnsuite::fused {

enum class Norm : int { kOne, kTwo, kInfinity, kPower };

/// One gradient [B, ...], each model's part contiguous, and the number of its first chunk.
struct GradientEntry {
    const void* data;
    int64_t stride, elements, first_chunk;
};

/// Chunks are cut by the shapes alone and added in order, so a norm depends on neither B nor the threads.
struct GradientArguments {
    DType dtype;
    Norm norm;
    double power;
    int64_t models, entry_count, chunks;  // chunks of one model
    const GradientEntry* entries;
};
constexpr int64_t kGradientChunk = 16384;  // elements

namespace DNNSUITE_ISA {

/// Term of an element in a sum or a maximum.
DNNSUITE_HD double norm_term(Norm norm, double power, double x) {
    const double size = x < 0.0 ? -x : x;
    if (norm == Norm::kTwo) return x * x;
    return norm == Norm::kPower ? ::pow(size, power) : size;
}
/// The larger of two; NaN wins.
DNNSUITE_HD double norm_join(Norm norm, double a, double b) {
    if (norm != Norm::kInfinity) return a + b;
    return a < b || b != b ? b : a;
}
DNNSUITE_HD double norm_finish(Norm norm, double power, double total) {
    if (norm == Norm::kTwo) return ::sqrt(total);
    return norm == Norm::kPower ? ::pow(total, 1.0 / power) : total;
}

}  // namespace DNNSUITE_ISA
}  // namespace dnnsuite::fused
