// SPDX-License-Identifier: MIT
// The sum and the largest of a vector's sixteen lanes.
#pragma once

#include "fused/cpu/vector.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Four floats: lanes 4 * quarter on.
typedef float Quad __attribute__((vector_size(16)));

template <int quarter>
DNNSUITE_HD Quad quad(const Vec<float>& v) {
    constexpr int per_register = Vec<float>::kPerRegister, first = quarter * 4 % per_register;
    const auto& part = v.part[quarter * 4 / per_register];
    return __builtin_shufflevector(part, part, first, first + 1, first + 2, first + 3);
}

/// Halves are combined (i with i + 8, then i + 4, ...): the same tree on every instruction set.
template <class Combine>
DNNSUITE_HD float reduce(const Vec<float>& v, Combine combine) {
    const Quad q = combine(combine(quad<0>(v), quad<2>(v)), combine(quad<1>(v), quad<3>(v)));
    const Quad pairs = combine(q, Quad(__builtin_shufflevector(q, q, 2, 3, 2, 3)));
    return combine(pairs[0], pairs[1]);
}
template <class Combine>
DNNSUITE_HD double reduce(const Vec<double>& v, Combine combine) {
    double lanes[kLanes];
    v.store(lanes);
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) lanes[i] = combine(lanes[i], lanes[i + half]);
    }
    return lanes[0];
}

template <class T>
DNNSUITE_HD T sum(const Vec<T>& v) {
    return reduce(v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}
template <class T>
DNNSUITE_HD T largest(const Vec<T>& v) {
    return reduce(v, [](auto a, auto b) __attribute__((always_inline)) { return a < b ? b : a; });
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
