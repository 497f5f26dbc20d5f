// SPDX-License-Identifier: MIT
#include "fused/cpu/isa.hpp"

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>

#include <torch/csrc/stable/library.h>

namespace dnnsuite::fused {
namespace {

Isa widest() {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
#if defined(DNNSUITE_WITH_AVX512)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return Isa::kAvx512;
#endif
#if defined(DNNSUITE_WITH_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#elif defined(__aarch64__)
    return Isa::kNeon;
#endif
    return Isa::kGeneric;
}

/// False for AVX2 in a library for a processor that has more.
bool is_compiled(Isa level) {
#if !defined(DNNSUITE_WITH_AVX2)
    if (level == Isa::kAvx2) return false;
#endif
    return level <= widest();
}

Isa choose() {
    const Isa best = widest();
    const char* asked = std::getenv("DNNSUITE_ISA");
    if (asked == nullptr || best == Isa::kNeon) return best;
    for (Isa level : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512})
        if (std::strcmp(asked, isa_name(level)) == 0 && is_compiled(level)) return level;
    return best;
}

}  // namespace

Isa isa() {
    static const Isa level = choose();
    return level;
}

const char* isa_name(Isa level) {
    switch (level) {
        case Isa::kAvx512: return "avx512";
        case Isa::kAvx2: return "avx2";
        case Isa::kNeon: return "neon";
        case Isa::kGeneric: break;
    }
    return "generic";
}

namespace {
std::string instruction_set() { return isa_name(isa()); }
}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CompositeExplicitAutograd, m) {
    m.impl("instruction_set", TORCH_BOX(&instruction_set));
}

}  // namespace dnnsuite::fused

/// For `dnnsuite doctor`, which asks by ctypes: an operator would need a tensor to dispatch on.
extern "C" __attribute__((visibility("default"))) const char* dnnsuite_isa() {
    return dnnsuite::fused::isa_name(dnnsuite::fused::isa());
}
