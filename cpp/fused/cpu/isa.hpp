// SPDX-License-Identifier: MIT
// Kernels are compiled for several instruction sets (CMakeLists.txt: DNNSUITE_ISA), here those that DNNSUITE_WITH_AVX2
// and DNNSUITE_WITH_AVX512 name and the generic one; one set is chosen per process.
#pragma once

namespace dnnsuite::fused {

enum class Isa { kGeneric, kNeon, kAvx2, kAvx512 };

/// The widest set that this machine has and this library was compiled for, or what DNNSUITE_ISA=generic|avx2|avx512
/// asks for (never more than there is). On Arm it is NEON: every processor of 64 bits has it.
Isa isa();
const char* isa_name(Isa level);

// The kernels that every processor of this machine's kind can run, for tests.
#if defined(__aarch64__)
namespace neon {}
namespace baseline = neon;
#else
namespace generic {}
namespace baseline = generic;
#endif

}  // namespace dnnsuite::fused

// DNNSUITE_KERNEL declares a kernel in each of its namespaces; DNNSUITE_SELECT is the one to call.
#if defined(__x86_64__)
#define DNNSUITE_KERNEL(name, ...)                \
    namespace generic { void name(__VA_ARGS__); } \
    namespace avx2 { void name(__VA_ARGS__); }    \
    namespace avx512 { void name(__VA_ARGS__); }
#if defined(DNNSUITE_WITH_AVX512)
#define DNNSUITE_OR_AVX512(name) ::dnnsuite::fused::isa() == ::dnnsuite::fused::Isa::kAvx512 ? avx512::name:
#else
#define DNNSUITE_OR_AVX512(name)
#endif
#if defined(DNNSUITE_WITH_AVX2)
#define DNNSUITE_OR_AVX2(name) ::dnnsuite::fused::isa() == ::dnnsuite::fused::Isa::kAvx2 ? avx2::name:
#else
#define DNNSUITE_OR_AVX2(name)
#endif
#define DNNSUITE_SELECT(name) (DNNSUITE_OR_AVX512(name) DNNSUITE_OR_AVX2(name) generic::name)
#elif defined(__aarch64__)
#define DNNSUITE_KERNEL(name, ...) \
    namespace neon { void name(__VA_ARGS__); }
#define DNNSUITE_SELECT(name) (neon::name)
#else
#define DNNSUITE_KERNEL(name, ...) \
    namespace generic { void name(__VA_ARGS__); }
#define DNNSUITE_SELECT(name) (generic::name)
#endif
