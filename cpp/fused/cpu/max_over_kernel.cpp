// SPDX-License-Identifier: MIT
// The largest over a dimension and where it is. As in torch the first of equals wins, and a NaN is larger than all.
// Compiled once per instruction set.
#include "fused/cpu/max_over_kernel.hpp"

#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector.hpp"
#include "fused/math/max_over.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

/// Lanes in which `value` replaces `best`, as masks for lanes of float and of int32.
struct Replaced {
    Vec<float>::Mask floats;
    Vec<int32_t>::Mask integers;
};

DNNSUITE_HD Replaced replaced(const Vec<float>& value, const Vec<float>& best) {
    Replaced r;
    constexpr int kParts = Vec<float>::kParts;
    DNNSUITE_EACH {
        const auto mask = ~(value.part[i] <= best.part[i]) & (best.part[i] == best.part[i]);
        r.floats.part[i] = mask;
        r.integers.part[i] = mask;
    }
    return r;
}

/// Rows of `inner` numbers, streamed whole; the best so far of each column stay in L1. Several rows at once, so that
/// they are loaded and stored once for all of them.
template <int rows, bool signs>
void take_rows(const float* x, const float* sign, int64_t inner, int32_t row, float* best, int32_t* where) {
    for_each_vector(inner, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        Vec<float> b = Vec<float>::load(best + i, n);
        Vec<int32_t> w = Vec<int32_t>::load(where + i, n);
        DNNSUITE_UNROLL for (int r = 0; r < rows; ++r) {
            Vec<float> value = Vec<float>::load(x + r * inner + i, n);
            if constexpr (signs) value = value * Vec<float>::load(sign + i, n);
            const Replaced mask = replaced(value, b);
            b = select(mask.floats, value, b);
            w = select(mask.integers, Vec<int32_t>(row + r), w);
        }
        b.store(best + i, n);
        w.store(where + i, n);
    });
}

template <bool signs>
void middle(const float* x, const float* sign, int64_t count, int64_t inner, float* best, int32_t* where) {
    constexpr int kRows = 8;
    for (int64_t i = 0; i < inner; ++i) best[i] = signs ? x[i] * sign[i] : x[i];
    fill(where, inner, int32_t(0));
    int64_t k = 1;
    for (; k + kRows <= count; k += kRows)
        take_rows<kRows, signs>(x + k * inner, sign, inner, static_cast<int32_t>(k), best, where);
    for (; k < count; ++k) take_rows<1, signs>(x + k * inner, sign, inner, static_cast<int32_t>(k), best, where);
}

/// One run of numbers: a best for each lane, then the best lane; of equals the one that came first.
void last(const float* x, int64_t count, float* best, int32_t* where) {
    int64_t k = 0;
    *best = x[0];
    *where = 0;
    if (count >= kLanes) {
        Vec<float> b = Vec<float>::load(x);
        Vec<int32_t> w = iota<int32_t>(), now = w;
        for (k = kLanes; k + kLanes <= count; k += kLanes) {
            now = now + Vec<int32_t>(kLanes);
            const Vec<float> value = Vec<float>::load(x + k);
            const Replaced mask = replaced(value, b);
            b = select(mask.floats, value, b);
            w = select(mask.integers, now, w);
        }
        float bests[kLanes];
        int32_t places[kLanes];
        b.store(bests);
        w.store(places);
        *best = bests[0];
        *where = places[0];
        for (int i = 1; i < kLanes; ++i) {
            const bool equal = !replaces(bests[i], *best) && !replaces(*best, bests[i]);
            if (replaces(bests[i], *best) || (equal && places[i] < *where)) {
                *best = bests[i];
                *where = places[i];
            }
        }
    }
    for (; k < count; ++k) {
        if (replaces(x[k], *best)) {
            *best = x[k];
            *where = static_cast<int32_t>(k);
        }
    }
}

/// Any type and shape.
template <class T>
void plain(const T* x, const T* sign, int64_t count, int64_t inner, T* best, int32_t* where) {
    for (int64_t i = 0; i < inner; ++i) {
        const T times = sign == nullptr ? T(1) : sign[i];
        best[i] = x[i] * times;
        where[i] = 0;
        for (int64_t k = 1; k < count; ++k) {
            if (const T value = x[k * inner + i] * times; replaces(value, best[i])) {
                best[i] = value;
                where[i] = static_cast<int32_t>(k);
            }
        }
    }
}

template <class T>
void slices(const MaxArguments& args, int64_t begin, int64_t end, int32_t* where) {
    for (int64_t s = begin; s < end; ++s) {
        const T* x = at<T>(args.x, s * args.count * args.inner);
        const T* sign = at<T>(args.sign, s / args.outer * args.inner);
        T* best = mutable_at<T>(args.values, s * args.inner);
        if constexpr (sizeof(T) == 4) {
            if (sign != nullptr)
                middle<true>(x, sign, args.count, args.inner, best, where);
            else if (args.inner == 1)
                last(x, args.count, best, where);
            else
                middle<false>(x, nullptr, args.count, args.inner, best, where);
        } else {
            plain(x, sign, args.count, args.inner, best, where);
        }
        for (int64_t i = 0; i < args.inner; ++i) args.indices[s * args.inner + i] = where[i];
    }
}

}  // namespace

void max_over(const MaxArguments& args, int64_t begin, int64_t end, void* scratch) {
    auto* where = static_cast<int32_t*>(scratch);
    if (args.dtype == DType::kFloat64) return slices<double>(args, begin, end, where);
    slices<float>(args, begin, end, where);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
