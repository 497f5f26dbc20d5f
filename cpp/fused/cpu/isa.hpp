// SPDX-License-Identifier: MIT
// Kernels are compiled for several instruction sets (CMakeLists.txt: DNNSUITE_ISA); one set is chosen per process.
#pragma once

namespace dnnsuite::fused {

enum class Isa { kGeneric, kAvx2, kAvx512 };

/// The widest set this machine has, or what DNNSUITE_ISA=generic|avx2|avx512 asks for (never more than there is).
Isa isa();
const char* isa_name(Isa level);

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
#else
#define DNNSUITE_KERNEL(name, ...) \
    namespace generic { void name(__VA_ARGS__); }
#define DNNSUITE_SELECT(name) (generic::name)
#endif
