// SPDX-License-Identifier: MIT
// Kernels are compiled for several instruction sets (CMakeLists.txt: DNNSUITE_ISA); one set is chosen per process.
#pragma once

namespace dnnsuite::fused {

enum class Isa { kGeneric, kNeon, kAvx2, kAvx512 };

/// The widest set this machine has, or what DNNSUITE_ISA=generic|avx2|avx512 asks for (never more than there is). On Arm
/// it is NEON: every processor of 64 bits has it.
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
#define DNNSUITE_SELECT(name)                                                   \
    (::dnnsuite::fused::isa() == ::dnnsuite::fused::Isa::kAvx512 ? avx512::name \
     : ::dnnsuite::fused::isa() == ::dnnsuite::fused::Isa::kAvx2 ? avx2::name   \
                                                                 : generic::name)
#elif defined(__aarch64__)
#define DNNSUITE_KERNEL(name, ...) \
    namespace neon { void name(__VA_ARGS__); }
#define DNNSUITE_SELECT(name) (neon::name)
#else
#define DNNSUITE_KERNEL(name, ...) \
    namespace generic { void name(__VA_ARGS__); }
#define DNNSUITE_SELECT(name) (generic::name)
#endif
