// SPDX-License-Identifier: MIT
// Vec<T>: sixteen numbers, whatever the machine's registers hold, so that sums are formed in one order on every
// instruction set. A Vec is an array of GCC vector registers: 1 for AVX-512, 2 for AVX2, 4 for SSE2 and NEON (float).
#pragma once

#include <cstddef>

#include "fused/math/portable.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace dnnsuite::fused::DNNSUITE_ISA {

#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif
constexpr int kLanes = 16;

#if defined(__x86_64__) && !defined(__AVX2__)
/// One made before 2013, for which the variants that take longest to compile are left out.
constexpr bool kOldProcessor = true;
#else
constexpr bool kOldProcessor = false;
#endif

template <int Bytes>
struct SignedOf;
template <>
struct SignedOf<4> {
    using type = int32_t;
};
template <>
struct SignedOf<8> {
    using type = int64_t;
};

// The first `count` numbers of a register, from and to memory. Number by number they would go through the stack, from
// where a whole register is read before its numbers have arrived: ten columns took ten times as long as sixteen.
#if defined(__AVX2__) || defined(__aarch64__)
#define DNNSUITE_LOADS_LANES
#endif
#if defined(__AVX512F__)
DNNSUITE_HD __mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>((1u << count) - 1u); }
DNNSUITE_HD __m512 load_lanes(const float* from, int64_t count) {
    return _mm512_maskz_loadu_ps(first_lanes(count), from);
}
DNNSUITE_HD __m512d load_lanes(const double* from, int64_t count) {
    return _mm512_maskz_loadu_pd(static_cast<__mmask8>(first_lanes(count)), from);
}
DNNSUITE_HD __m512i load_lanes(const int32_t* from, int64_t count) {
    return _mm512_maskz_loadu_epi32(first_lanes(count), from);
}
DNNSUITE_HD void store_lanes(__m512i v, int32_t* to, int64_t count) {
    _mm512_mask_storeu_epi32(to, first_lanes(count), v);
}
DNNSUITE_HD void store_lanes(__m512 v, float* to, int64_t count) { _mm512_mask_storeu_ps(to, first_lanes(count), v); }
DNNSUITE_HD void store_lanes(__m512d v, double* to, int64_t count) {
    _mm512_mask_storeu_pd(to, static_cast<__mmask8>(first_lanes(count)), v);
}
#elif defined(__AVX2__)
DNNSUITE_HD __m256i first_floats(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
DNNSUITE_HD __m256i first_doubles(int64_t count) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}
DNNSUITE_HD __m256 load_lanes(const float* from, int64_t count) {
    return _mm256_maskload_ps(from, first_floats(count));
}
DNNSUITE_HD __m256d load_lanes(const double* from, int64_t count) {
    return _mm256_maskload_pd(from, first_doubles(count));
}
DNNSUITE_HD __m256i load_lanes(const int32_t* from, int64_t count) {
    return _mm256_maskload_epi32(from, first_floats(count));
}
DNNSUITE_HD void store_lanes(__m256i v, int32_t* to, int64_t count) {
    _mm256_maskstore_epi32(to, first_floats(count), v);
}
DNNSUITE_HD void store_lanes(__m256 v, float* to, int64_t count) { _mm256_maskstore_ps(to, first_floats(count), v); }
DNNSUITE_HD void store_lanes(__m256d v, double* to, int64_t count) { _mm256_maskstore_pd(to, first_doubles(count), v); }
#elif defined(__aarch64__)
// NEON has no masks: halves and lanes, of which no load reaches past the last number.
#define DNNSUITE_FOUR_LANES(Number, Register, kind)                                      \
    DNNSUITE_HD Register load_lanes(const Number* from, int64_t count) {                 \
        if (count >= 4) return vld1q_##kind(from);                                       \
        const Register zeros = vdupq_n_##kind(0);                                        \
        if (count <= 0) return zeros;                                                    \
        if (count == 1) return vld1q_lane_##kind(from, zeros, 0);                        \
        const Register two = vcombine_##kind(vld1_##kind(from), vget_low_##kind(zeros)); \
        return count == 2 ? two : vld1q_lane_##kind(from + 2, two, 2);                   \
    }                                                                                    \
    DNNSUITE_HD void store_lanes(Register v, Number* to, int64_t count) {                \
        if (count >= 4) return vst1q_##kind(to, v);                                      \
        if (count == 1) return vst1q_lane_##kind(to, v, 0);                              \
        if (count >= 2) vst1_##kind(to, vget_low_##kind(v));                             \
        if (count == 3) vst1q_lane_##kind(to + 2, v, 2);                                 \
    }
DNNSUITE_FOUR_LANES(float, float32x4_t, f32)
DNNSUITE_FOUR_LANES(int32_t, int32x4_t, s32)
#undef DNNSUITE_FOUR_LANES
DNNSUITE_HD float64x2_t load_lanes(const double* from, int64_t count) {
    if (count >= 2) return vld1q_f64(from);
    const float64x2_t zeros = vdupq_n_f64(0);
    return count == 1 ? vld1q_lane_f64(from, zeros, 0) : zeros;
}
DNNSUITE_HD void store_lanes(float64x2_t v, double* to, int64_t count) {
    if (count >= 2) return vst1q_f64(to, v);
    if (count == 1) vst1q_lane_f64(to, v, 0);
}
#endif

#define DNNSUITE_EACH _Pragma("GCC unroll 16") for (int i = 0; i < kParts; ++i)

template <class T>
struct Vec {
    static constexpr int kParts = kLanes * static_cast<int>(sizeof(T)) / kRegisterBytes;
    static constexpr int kPerRegister = kRegisterBytes / static_cast<int>(sizeof(T));
    using Integer = typename SignedOf<sizeof(T)>::type;
    typedef T Register __attribute__((vector_size(kRegisterBytes)));
    typedef Integer IntegerRegister __attribute__((vector_size(kRegisterBytes)));

    /// The result of a comparison: all bits of a lane set, or none.
    struct Mask {
        IntegerRegister part[kParts];
    };

    Register part[kParts];

    Vec() = default;
    DNNSUITE_HD explicit Vec(T value) { DNNSUITE_EACH part[i] = value - Register{}; }

    DNNSUITE_HD static Vec load(const T* from) {
        Vec v;  // register by register: GCC keeps a copied array in memory
        DNNSUITE_EACH __builtin_memcpy(&v.part[i], from + i * kPerRegister, kRegisterBytes);
        return v;
    }
    /// The first `count` (1 to 16) numbers, zeros behind them.
    DNNSUITE_HD static Vec load(const T* from, int64_t count) {
        if (is_whole(count)) return load(from);
#if defined(DNNSUITE_LOADS_LANES)
        Vec v;
        DNNSUITE_EACH v.part[i] = (Register)load_lanes(from + i * kPerRegister, lanes_of(i, count));
        return v;
#else
        T lanes[kLanes] = {};
        for (int64_t i = 0; i < count; ++i) lanes[i] = from[i];
        return load(lanes);
#endif
    }
    DNNSUITE_HD void store(T* to) const {
        DNNSUITE_EACH __builtin_memcpy(to + i * kPerRegister, &part[i], kRegisterBytes);
    }
    DNNSUITE_HD void store(T* to, int64_t count) const {
        if (is_whole(count)) return store(to);
#if defined(DNNSUITE_LOADS_LANES)
        using Native = decltype(load_lanes(to, count));
        DNNSUITE_EACH store_lanes((Native)part[i], to + i * kPerRegister, lanes_of(i, count));
#else
        T lanes[kLanes];
        store(lanes);
        for (int64_t i = 0; i < count; ++i) to[i] = lanes[i];
#endif
    }
    /// Past the caches, to an address that is a multiple of 64; for numbers that nobody reads before they have left them.
    /// Arm's processors see by themselves that whole lines are written.
    DNNSUITE_HD void stream(T* to) const {
#if defined(__AVX512F__)
        DNNSUITE_EACH _mm512_stream_si512((__m512i*)(to + i * kPerRegister), (__m512i)part[i]);
#elif defined(__AVX2__)
        DNNSUITE_EACH _mm256_stream_si256((__m256i*)(to + i * kPerRegister), (__m256i)part[i]);
#else
        store(to);
#endif
    }
    /// With AVX-512 a mask of all lanes costs nothing, a branch in a loop does.
    DNNSUITE_HD static bool is_whole(int64_t count) {
        if (kParts == 1 && kRegisterBytes == 64 && !__builtin_constant_p(count)) return false;
        return count >= kLanes;
    }
    /// Number of the first `count` numbers that are in register i.
    DNNSUITE_HD static int64_t lanes_of(int i, int64_t count) {
        const int64_t left = count - i * kPerRegister;
        return left < 0 ? 0 : left < kPerRegister ? left : int64_t{kPerRegister};
    }

#define DNNSUITE_BINARY(op)                                          \
    DNNSUITE_HD friend Vec operator op(const Vec& a, const Vec& b) { \
        Vec r;                                                       \
        DNNSUITE_EACH r.part[i] = a.part[i] op b.part[i];            \
        return r;                                                    \
    }
    DNNSUITE_BINARY(+)
    DNNSUITE_BINARY(-)
    DNNSUITE_BINARY(*)
    DNNSUITE_BINARY(/)
    DNNSUITE_BINARY(^)
    DNNSUITE_BINARY(&)
    DNNSUITE_BINARY(|)
#undef DNNSUITE_BINARY

    DNNSUITE_HD friend Mask operator<(const Vec& a, const Vec& b) {
        Mask r;
        DNNSUITE_EACH r.part[i] = a.part[i] < b.part[i];
        return r;
    }
    DNNSUITE_HD friend Vec select(const Mask& mask, const Vec& a, const Vec& b) {
        Vec r;
        DNNSUITE_EACH r.part[i] = mask.part[i] ? a.part[i] : b.part[i];
        return r;
    }
    DNNSUITE_HD Vec shift_right(int bits) const {
        Vec r;
        DNNSUITE_EACH r.part[i] = part[i] >> bits;
        return r;
    }
    DNNSUITE_HD Vec shift_left(int bits) const {
        Vec r;
        DNNSUITE_EACH r.part[i] = part[i] << bits;
        return r;
    }
};

template <class T>
struct ScalarOf<Vec<T>> {
    using type = T;
};

/// The same bits as lanes of another type of the same size.
template <class To, class From>
DNNSUITE_HD Vec<To> bits_as(const Vec<From>& v) {
    static_assert(sizeof(Vec<To>) == sizeof(Vec<From>));
    Vec<To> r;
    constexpr int kParts = Vec<To>::kParts;
    DNNSUITE_EACH r.part[i] = (typename Vec<To>::Register)v.part[i];
    return r;
}

/// 0, 1, ..., 15.
template <class T>
DNNSUITE_HD Vec<T> iota() {
    T lanes[kLanes];
    _Pragma("GCC unroll 16") for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<T>(i);
    return Vec<T>::load(lanes);
}

/// Zeros from lane `count` on.
template <class T>
DNNSUITE_HD Vec<T> keep_first(const Vec<T>& v, int64_t count) {
    if (count >= kLanes) return v;
    return select(iota<T>() < Vec<T>(static_cast<T>(count)), v, Vec<T>(T(0)));
}

/// Lets other threads see what was streamed.
DNNSUITE_HD void finish_streams() {
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

/// Fetches the line of x that is `ahead` numbers behind it, into L2 or nearer.
template <class T>
DNNSUITE_HD void fetch(const T* x, int64_t ahead) {
    __builtin_prefetch(
        reinterpret_cast<const char*>(reinterpret_cast<intptr_t>(x) + ahead * static_cast<int64_t>(sizeof(T))), 0, 2);
}

/// Calls body(i, n) for the vectors of a row: n = 16 for whole ones (a constant, so that the body's partial loads and
/// stores fold to plain ones), fewer for what is left.
template <class Body>
DNNSUITE_HD void for_each_vector(int64_t columns, const Body& body) {
    int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes) body(i, int64_t{kLanes});
    if (i < columns) body(i, columns - i);
}

/// Copies, or adds, `count` numbers to others.
template <class T>
DNNSUITE_HD void copy_run(const T* from, T* to, int64_t count) {
    for_each_vector(count, [&](int64_t i, int64_t n)
                               __attribute__((always_inline)) { Vec<T>::load(from + i, n).store(to + i, n); });
}

template <class T>
DNNSUITE_HD void add_run(const T* from, T* to, int64_t count) {
    for_each_vector(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        (Vec<T>::load(to + i, n) + Vec<T>::load(from + i, n)).store(to + i, n);
    });
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
