// SPDX-License-Identifier: MIT
// sqrt, max, exp, erf and the wide multiply of Philox for Vec. For double the library's functions are called lane
// by lane: double exists for gradient checks, float for speed.
#pragma once

#include "fused/cpu/reduction.hpp"
#include "fused/math/activation.hpp"
#include "fused/math/philox.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace dnnsuite::fused::DNNSUITE_ISA {

template <class T>
DNNSUITE_HD Vec<T> maximum(const Vec<T>& a, const Vec<T>& b) {
    return select(a < b, b, a);
}

#if defined(__AVX512F__)
DNNSUITE_HD __m512 register_root(__m512 v) { return _mm512_sqrt_ps(v); }
DNNSUITE_HD __m512d register_root(__m512d v) { return _mm512_sqrt_pd(v); }
#elif defined(__AVX2__)
DNNSUITE_HD __m256 register_root(__m256 v) { return _mm256_sqrt_ps(v); }
DNNSUITE_HD __m256d register_root(__m256d v) { return _mm256_sqrt_pd(v); }
#elif defined(__SSE2__)
DNNSUITE_HD __m128 register_root(__m128 v) { return _mm_sqrt_ps(v); }
DNNSUITE_HD __m128d register_root(__m128d v) { return _mm_sqrt_pd(v); }
#elif defined(__aarch64__)
DNNSUITE_HD float32x4_t register_root(Vec<float>::Register v) { return vsqrtq_f32((float32x4_t)v); }
DNNSUITE_HD float64x2_t register_root(Vec<double>::Register v) { return vsqrtq_f64((float64x2_t)v); }
#else
template <class Register>
DNNSUITE_HD Register register_root(Register v) {
    for (unsigned j = 0; j < sizeof(v) / sizeof(v[0]); ++j) v[j] = square_root(v[j]);
    return v;
}
#endif

template <class T>
DNNSUITE_HD Vec<T> square_root(const Vec<T>& v) {
    Vec<T> r;
    _Pragma("GCC unroll 16") for (int i = 0; i < Vec<T>::kParts; ++i) r.part[i] =
        (typename Vec<T>::Register)register_root(v.part[i]);
    return r;
}

/// exp by 2^n * e^r, |r| <= ln(2) / 2, with a minimax polynomial of degree 6 (relative error 3e-9, 1.5e-7 with the
/// rounding of float). Below -87.3, where float loses bits, it is 0 (also for -inf); above 88.3 it saturates near 2.4e38.
/// NaN stays NaN.
DNNSUITE_HD Vec<float> exponential(const Vec<float>& x) {
    using V = Vec<float>;
    const V low(-87.3f), high(88.3f), magic(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const V t = select(high < x, high, select(x < low, low, x));
    const V shifted = t * V(1.44269504f) + magic;
    const V n = shifted - magic;
    const V r = (t - n * V(0.693359375f)) + n * V(2.12194440e-4f);
    V p = V(1.38145988e-3f);
    p = p * r + V(8.36871658e-3f);
    p = p * r + V(4.16683890e-2f);
    p = p * r + V(1.66665211e-1f);
    p = p * r + V(4.99999940e-1f);
    p = (p * r) * r + (r + V(1.0f));
    // The integer sits in the low bits of `shifted`; moved to the exponent it multiplies by 2^n.
    const V scaled = bits_as<float>(bits_as<int32_t>(p) + bits_as<int32_t>(shifted).shift_left(23));
    return select(x < low, V(0.0f), scaled);
}
DNNSUITE_HD Vec<double> exponential(const Vec<double>& x) {
    double lanes[kLanes];
    x.store(lanes);
    for (int i = 0; i < kLanes; ++i) lanes[i] = ::exp(lanes[i]);
    return Vec<double>::load(lanes);
}

/// log of a positive number, as m * 2^n with m between the roots of 1/2 and 2, by a polynomial of degree 11, to the last
/// bit or two. NaN and inf give NaN.
DNNSUITE_HD Vec<float> logarithm(const Vec<float>& x) {
    using V = Vec<float>;
    using I = Vec<int32_t>;
    const float magic = 12582912.0f;  // 1.5 * 2^23, whose bits count on from 0x4b400000
    const I bits = bits_as<int32_t>(x), n = (bits - I(0x3f3504f3)).shift_right(23);
    const V m = bits_as<float>(bits - n.shift_left(23)) - V(1.0f);
    const V e = bits_as<float>(n + I(0x4b400000)) - V(magic);
    V p(7.14975521e-2f);
    const float factors[] = {-1.15712002e-1f, 1.16615102e-1f, -1.24110505e-1f, 1.42499372e-1f,
                             -1.66684806e-1f, 2.00007081e-1f, -2.49999896e-1f, 3.33333313e-1f};
    _Pragma("GCC unroll 8") for (const float factor : factors) p = p * m + V(factor);
    const V square = m * m, small = p * m * square - e * V(2.12194440e-4f) - square * V(0.5f);
    return m + small + e * V(0.693359375f) + (x - x);
}
DNNSUITE_HD Vec<double> logarithm(const Vec<double>& x) {
    double lanes[kLanes];
    x.store(lanes);
    for (int i = 0; i < kLanes; ++i) lanes[i] = ::log(lanes[i]);
    return Vec<double>::load(lanes);
}

template <class T>
DNNSUITE_HD Vec<T> logistic(const Vec<T>& x) {
    return Vec<T>(T(1)) / (Vec<T>(T(1)) + exponential(Vec<T>(T(0)) - x));
}

/// The normal distribution function by Abramowitz and Stegun 7.1.26 (absolute error below 2.5e-7 in
/// float arithmetic); the exponential in it is the density's.
DNNSUITE_HD Normal<Vec<float>> normal(const Vec<float>& x) {
    using V = Vec<float>;
    const V z = bits_as<float>(bits_as<int32_t>(x) & Vec<int32_t>(0x7FFFFFFF)) * V(0.70710678f);
    const V gauss = exponential(V(0.0f) - z * z);
    const V t = V(1.0f) / (V(1.0f) + V(0.3275911f) * z);
    V p = V(1.061405429f);
    p = p * t + V(-1.453152027f);
    p = p * t + V(1.421413741f);
    p = p * t + V(-0.284496736f);
    p = p * t + V(0.254829592f);
    const V tail = V(0.5f) * (p * t) * gauss;  // 1 - Phi(|x|)
    return {select(x < V(0.0f), tail, V(1.0f) - tail), V(0.39894228f) * gauss};
}
DNNSUITE_HD Normal<Vec<double>> normal(const Vec<double>& x) {
    double lanes[kLanes], distribution[kLanes], density[kLanes];
    x.store(lanes);
    for (int i = 0; i < kLanes; ++i) {
        const Normal<double> n = normal(lanes[i]);
        distribution[i] = n.distribution;
        density[i] = n.density;
    }
    return {Vec<double>::load(distribution), Vec<double>::load(density)};
}

/// 16 products of 32 x 32 bits: even and odd lanes apart, since the machines multiply every second lane.
DNNSUITE_HD void multiply_wide(const Vec<uint32_t>& a, uint32_t factor, Vec<uint32_t>& high, Vec<uint32_t>& low) {
    for (int i = 0; i < Vec<uint32_t>::kParts; ++i) {
        using Register = Vec<uint32_t>::Register;
#if defined(__AVX512F__)
        const __m512i f = _mm512_set1_epi64(factor), x = (__m512i)a.part[i];
        const __m512i even = _mm512_mul_epu32(x, f), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), f);
        high.part[i] = (Register)_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xAAAA, odd);
        low.part[i] = (Register)_mm512_mask_mov_epi32(even, 0xAAAA, _mm512_slli_epi64(odd, 32));
#elif defined(__AVX2__)
        const __m256i f = _mm256_set1_epi64x(factor), x = (__m256i)a.part[i];
        const __m256i even = _mm256_mul_epu32(x, f), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), f);
        high.part[i] = (Register)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
        low.part[i] = (Register)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
#elif defined(__SSE2__)
        const __m128i f = _mm_set1_epi64x(factor), x = (__m128i)a.part[i];
        const __m128i upper = _mm_set1_epi64x(static_cast<int64_t>(0xFFFFFFFF00000000ull));
        const __m128i even = _mm_mul_epu32(x, f), odd = _mm_mul_epu32(_mm_srli_epi64(x, 32), f);
        high.part[i] = (Register)_mm_or_si128(_mm_srli_epi64(even, 32), _mm_and_si128(odd, upper));
        low.part[i] = (Register)_mm_or_si128(_mm_andnot_si128(upper, even), _mm_slli_epi64(odd, 32));
#elif defined(__aarch64__)
        const uint32x4_t x = (uint32x4_t)a.part[i];
        const uint32x4_t first = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(x), factor));
        const uint32x4_t last = vreinterpretq_u32_u64(vmull_high_n_u32(x, factor));
        high.part[i] = (Register)vuzp2q_u32(first, last);
        low.part[i] = (Register)vuzp1q_u32(first, last);
#else
        for (int j = 0; j < kRegisterBytes / 4; ++j) {
            const uint64_t product = static_cast<uint64_t>(a.part[i][j]) * factor;
            high.part[i][j] = static_cast<uint32_t>(product >> 32);
            low.part[i][j] = static_cast<uint32_t>(product);
        }
#endif
    }
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
