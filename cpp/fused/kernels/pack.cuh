// SPDX-License-Identifier: MIT
// Packs: neighbours that one access of 16 bytes moves. Which thread has which pack follows from the shape and the type
// alone; where an array does not lie on a boundary of 16 bytes, the same numbers are moved one by one.
#pragma once

#include <initializer_list>

#include "fused/kernels/device.cuh"

namespace dnnsuite::fused::kernels {

template <class T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

/// A pack as it lies in memory.
template <class T>
struct alignas(16) Pack {
    T value[kPack<T>];
};

/// A pack to compute with.
template <class T>
struct Values {
    accumulated<T> value[kPack<T>];
    __device__ __forceinline__ accumulated<T>& operator[](int i) { return value[i]; }
    __device__ __forceinline__ accumulated<T> operator[](int i) const { return value[i]; }
};

/// True if arrays of rows of `columns` T can be moved in whole packs. Null pointers do not count.
template <class T>
bool in_packs(int64_t columns, std::initializer_list<const void*> arrays) {
    bool whole = columns % kPack<T> == 0;
    for (const void* p : arrays) whole = whole && reinterpret_cast<uintptr_t>(p) % 16 == 0;
    return whole;
}

/// p[i], p[i + 1], ... up to a pack; beyond p[end - 1] zeros.
template <class T>
__device__ __forceinline__ Values<T> load_pack(const T* p, int64_t i, int64_t end, bool whole) {
    Values<T> v;
    if (whole) {
        const Pack<T> pack = *reinterpret_cast<const Pack<T>*>(p + i);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) v[j] = load(pack.value, j);
    } else {
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) v[j] = i + j < end ? load(p, i + j) : accumulated<T>(0);
    }
    return v;
}
/// The same of an array that may be null, then `absent` throughout.
template <class T>
__device__ __forceinline__ Values<T> load_pack_or(const void* p, int64_t i, int64_t end, bool whole, double absent) {
    if (p != nullptr) return load_pack(static_cast<const T*>(p), i, end, whole);
    Values<T> v;
    DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) v[j] = static_cast<accumulated<T>>(absent);
    return v;
}

template <class T>
__device__ __forceinline__ void store_pack(T* p, int64_t i, int64_t end, bool whole, const Values<T>& v) {
    if (whole) {
        Pack<T> pack;
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) store(pack.value, j, v[j]);
        *reinterpret_cast<Pack<T>*>(p + i) = pack;
    } else {
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) if (i + j < end) store(p, i + j, v[j]);
    }
}

/// Calls body(i) for the first element of each pack that this one of `threads` has of `count` elements.
template <class T, class Body>
__device__ __forceinline__ void for_each_pack(int threads, int64_t count, const Body& body) {
    for (int64_t i = static_cast<int64_t>(threadIdx.x) * kPack<T>; i < count; i += threads * kPack<T>) body(i);
}

}  // namespace dnnsuite::fused::kernels
