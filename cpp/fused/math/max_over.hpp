// SPDX-License-Identifier: MIT
// Which of two numbers is the larger, as torch has it: a NaN is larger than all, of equals the first stays.
#pragma once

#include "fused/math/portable.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

template <class T>
DNNSUITE_HD bool replaces(T value, T best) {
    return best < value || (value != value && best == best);
}

/// A number and where it is.
template <class T>
struct Found {
    T value;
    int64_t at;
};

/// The larger of two, of equals that with the lower index; `at` < 0: none yet.
template <class T>
DNNSUITE_HD Found<T> larger(const Found<T>& a, const Found<T>& b) {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    if (replaces(b.value, a.value)) return b;
    return replaces(a.value, b.value) || a.at < b.at ? a : b;
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
