// SPDX-License-Identifier: MIT
// Macros with which the formulas of this folder are compiled for every device and instruction set from one text.
//
// A formula is a template over its number type T: `float` in a CUDA kernel, `Vec<float>` in a CPU kernel. Names
// such as sqrt(T) are found by the argument's type. Everything sits in a namespace called after the instruction
// set, because the CPU kernels are compiled several times with different compiler flags: without it the linker
// would keep one arbitrary copy of a template and a plain machine might run an AVX-512 instruction.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define DNNSUITE_HD __host__ __device__ __forceinline__
#else
#define DNNSUITE_HD inline __attribute__((always_inline))
#endif
#ifdef __CUDA_ARCH__
#define DNNSUITE_UNROLL _Pragma("unroll")
#elif defined(__CUDACC__)
#define DNNSUITE_UNROLL
#else
#define DNNSUITE_UNROLL _Pragma("GCC unroll 16")
#endif

#ifndef DNNSUITE_ISA
#define DNNSUITE_ISA generic
#endif

namespace dnnsuite::fused {

/// Activation of `bias_act_dropout`; the order is that of `parse_activation`.
enum class Activation : int { kNone = 0, kRelu = 1, kGelu = 2 };

namespace DNNSUITE_ISA {

/// The scalar type below a number type: float for float, double for Vec<double>.
template <class T>
struct ScalarOf {
    using type = T;
};
template <class T>
using scalar_of = typename ScalarOf<T>::type;

/// A number type's constant: `constant<T>(0.5)`.
template <class T>
DNNSUITE_HD T constant(double value) {
    return T(static_cast<scalar_of<T>>(value));
}

/// a / b of numbers that are not negative, in 32 bits where they fit: a GPU has no division of 64 bits, its code for one
/// is four times as long.
DNNSUITE_HD int64_t quotient(int64_t a, int64_t b) {
    if ((a | b) >> 32 == 0) return static_cast<int64_t>(static_cast<uint32_t>(a) / static_cast<uint32_t>(b));
    return a / b;
}

DNNSUITE_HD float square_root(float x) { return ::sqrtf(x); }
DNNSUITE_HD double square_root(double x) { return ::sqrt(x); }
DNNSUITE_HD float maximum(float a, float b) { return a < b ? b : a; }
DNNSUITE_HD double maximum(double a, double b) { return a < b ? b : a; }
DNNSUITE_HD float select(bool mask, float a, float b) { return mask ? a : b; }
DNNSUITE_HD double select(bool mask, double a, double b) { return mask ? a : b; }

}  // namespace DNNSUITE_ISA
}  // namespace dnnsuite::fused
