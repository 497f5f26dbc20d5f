// SPDX-License-Identifier: MIT
// Sums over chunks of gradients, sixteen at a time. Compiled once per instruction set.
#include "fused/cpu/gradient_kernel.hpp"

#include "fused/cpu/vector.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

/// Sixteen sums side by side, then in order: the same bits on every instruction set. Squares of floats are exact in
/// double, so it does not matter whether they are added by a fused operation.
template <Norm norm, class T>
double chunk_sum(const T* x, int64_t count, double power) {
    double lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
        for (int lane = 0; lane < kLanes; ++lane)
            lanes[lane] = norm_join(norm, lanes[lane], norm_term(norm, power, static_cast<double>(x[i + lane])));
    double total = 0.0;
    for (int lane = 0; lane < kLanes; ++lane) total = norm_join(norm, total, lanes[lane]);
    for (; i < count; ++i) total = norm_join(norm, total, norm_term(norm, power, static_cast<double>(x[i])));
    return total;
}

template <class T>
double chunk_norm(const GradientArguments& args, const T* x, int64_t count) {
    switch (args.norm) {
        case Norm::kOne: return chunk_sum<Norm::kOne>(x, count, 1.0);
        case Norm::kTwo: return chunk_sum<Norm::kTwo>(x, count, 2.0);
        case Norm::kInfinity: return chunk_sum<Norm::kInfinity>(x, count, 1.0);
        case Norm::kPower: return chunk_sum<Norm::kPower>(x, count, args.power);
    }
    return 0.0;
}

}  // namespace

void gradient_parts(const GradientArguments& args, int64_t begin, int64_t end, double* parts) {
    int64_t entry = 0;
    for (int64_t task = begin; task < end; ++task) {
        const int64_t model = task / args.chunks, chunk = task % args.chunks;
        if (chunk == 0 || task == begin) entry = 0;
        while (entry + 1 < args.entry_count && args.entries[entry + 1].first_chunk <= chunk) ++entry;
        const GradientEntry& gradient = args.entries[entry];
        const int64_t first = (chunk - gradient.first_chunk) * kGradientChunk;
        const int64_t left = gradient.elements - first, count = left < kGradientChunk ? left : kGradientChunk;
        const int64_t offset = model * gradient.stride + first;
        parts[task] = args.dtype == DType::kFloat64
                          ? chunk_norm(args, static_cast<const double*>(gradient.data) + offset, count)
                          : chunk_norm(args, static_cast<const float*>(gradient.data) + offset, count);
    }
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
