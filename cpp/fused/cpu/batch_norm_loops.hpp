// SPDX-License-Identifier: MIT
// The inner loops of batch norm and group norm. A row is W columns with one parameter each (channels last, or small
// maps), or a plane, all of it of one channel. Rows are read one after the other: four at once load parameters and sums
// once for four, but numbers that come from memory, as most do, then take twice the time.
#pragma once

#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector_math.hpp"
#include "fused/math/norm_activation.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

constexpr int64_t kAhead = 1024;  // numbers from one that is read to one that is fetched: nothing waits for memory

/// Calls body(i, count, skip): `count` numbers from i on, of which the first `skip` were seen before (the end of a
/// plane, which has 16 numbers or more, is read as a whole vector that overlaps the one before).
template <bool planes, class Body>
DNNSUITE_HD void for_each_block(int64_t columns, const Body& body) {
    if constexpr (planes) {
        int64_t i = 0;
        for (; i + kLanes <= columns; i += kLanes) body(i, int64_t{kLanes}, int64_t{0});
        if (i < columns) body(columns - kLanes, int64_t{kLanes}, i + kLanes - columns);
    } else {
        for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) { body(i, n, int64_t{0}); });
    }
}

/// A parameter for each column, or one for the plane.
template <bool planes, class T>
struct Parameter {
    const T* values;
    DNNSUITE_HD Vec<T> at(int64_t i, int64_t n) const {
        if constexpr (planes) return Vec<T>(*values);
        return Vec<T>::load(values + i, n);
    }
};

/// Two sums for each column, or for the plane.
template <bool planes, class T>
struct Sums {
    T *first, *second;
    Vec<T> a{T(0)}, b{T(0)};
    DNNSUITE_HD void open(int64_t i, int64_t n) {
        if constexpr (!planes) a = Vec<T>::load(first + i, n), b = Vec<T>::load(second + i, n);
    }
    DNNSUITE_HD void add(const Vec<T>& u, const Vec<T>& v, int64_t skip) {
        if (planes && skip > 0) {
            const auto seen = iota<T>() < Vec<T>(static_cast<T>(skip));
            a = a + select(seen, Vec<T>(T(0)), u);
            b = b + select(seen, Vec<T>(T(0)), v);
        } else {
            a = a + u;
            b = b + v;
        }
    }
    DNNSUITE_HD void close(int64_t i, int64_t n) {
        if constexpr (!planes) a.store(first + i, n), b.store(second + i, n);
    }
    DNNSUITE_HD void finish() {
        if constexpr (planes) *first = sum(a), *second = sum(b);
    }
};

/// Sums of x - shift and of its square.
template <bool planes, class T>
void moments(const T* x, int64_t columns, Parameter<planes, T> shift, Sums<planes, T> sums) {
    for_each_block<planes>(columns, [&](int64_t i, int64_t n, int64_t skip) __attribute__((always_inline)) {
        fetch(x + i, kAhead);
        const Vec<T> s = shift.at(i, n);
        sums.open(i, n);
        const Vec<T> d = Vec<T>::load(x + i, n) - s;
        sums.add(d, d * d, skip);
        sums.close(i, n);
    });
    sums.finish();
}

/// The parameters of y = activation((x - mean) * scale + bias), and backwards dx = g * scale - (x - mean) * curve - level.
template <bool planes, class T>
struct Affine {
    Parameter<planes, T> mean, scale, bias, curve, level;
    Vec<T> slope;
    bool streams = false;  // what is written goes past the caches: its rows are whole vectors

    DNNSUITE_HD void put(const Vec<T>& v, T* to, int64_t n) const { streams ? v.stream(to) : v.store(to, n); }
};

template <bool planes, NormActivation kind, bool add, class T>
void normalise(const T* x, const T* residual, T* y, int64_t columns, const Affine<planes, T>& p) {
    for_each_block<planes>(columns, [&](int64_t i, int64_t n, int64_t) __attribute__((always_inline)) {
        fetch(x + i, kAhead);
        const Vec<T> mean = p.mean.at(i, n), scale = p.scale.at(i, n), bias = p.bias.at(i, n);
        Vec<T> z = (Vec<T>::load(x + i, n) - mean) * scale + bias;
        if constexpr (add) z = z + Vec<T>::load(residual + i, n);
        p.put(norm_activate<kind>(z, p.slope), y + i, n);
    });
}

/// Sums of g and g * (x - mean), g the gradient before the activation, which is also the residual's.
template <bool planes, NormActivation kind, bool add, class T>
void gradient_sums(const T* x, const T* residual, const T* grad, T* dresidual, int64_t columns,
                   const Affine<planes, T>& p, Sums<planes, T> sums) {
    for_each_block<planes>(columns, [&](int64_t i, int64_t n, int64_t skip) __attribute__((always_inline)) {
        fetch(x + i, kAhead), fetch(grad + i, kAhead);
        const Vec<T> mean = p.mean.at(i, n), scale = p.scale.at(i, n), bias = p.bias.at(i, n);
        sums.open(i, n);
        const Vec<T> d = Vec<T>::load(x + i, n) - mean;
        Vec<T> g = Vec<T>::load(grad + i, n);
        if constexpr (kind != NormActivation::kNone) {
            Vec<T> z = d * scale + bias;
            if constexpr (add) z = z + Vec<T>::load(residual + i, n);
            g = g * norm_derivative<kind>(z, p.slope);
        }
        if constexpr (add) g.store(dresidual + i, n);
        sums.add(g, g * d, skip);
        sums.close(i, n);
    });
    sums.finish();
}

template <bool planes, NormActivation kind, class T>
void gradient(const T* x, const T* grad, T* dx, int64_t columns, const Affine<planes, T>& p) {
    for_each_block<planes>(columns, [&](int64_t i, int64_t n, int64_t) __attribute__((always_inline)) {
        fetch(x + i, kAhead), fetch(grad + i, kAhead);
        const Vec<T> mean = p.mean.at(i, n), scale = p.scale.at(i, n);
        const Vec<T> curve = p.curve.at(i, n), level = p.level.at(i, n);
        const Vec<T> d = Vec<T>::load(x + i, n) - mean;
        Vec<T> g = Vec<T>::load(grad + i, n);
        if constexpr (kind != NormActivation::kNone)
            g = g * norm_derivative<kind>(d * scale + p.bias.at(i, n), p.slope);
        p.put(g * scale - (d * curve + level), dx + i, n);
    });
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
