// SPDX-License-Identifier: MIT
// The 16-bit types of CUDA on the host: conversions that round to the nearest, ties to even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

struct __nv_bfloat16 {
    uint16_t bits;
};
struct __half {
    uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
inline __nv_bfloat16 __float2bfloat16(float x) {
    if (std::isnan(x)) return {0x7FFF};
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return {static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16)};
}

inline float __half2float(__half x) {
    const int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
    float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
    if (exponent == 31) size = fraction == 0 ? INFINITY : NAN;
    return (x.bits & 0x8000) != 0 ? -size : size;
}
inline __half __float2half(float x) {
    const unsigned sign = std::signbit(x) ? 0x8000u : 0u;
    if (std::isnan(x)) return {0x7FFF};
    int exponent = 0;
    std::frexp(x, &exponent);                                                     // |x| = f * 2^exponent, f in [0.5, 1)
    exponent = exponent - 1 < -14 ? -14 : exponent - 1;                           // below it numbers are subnormal
    const float units = std::nearbyint(std::ldexp(std::fabs(x), 10 - exponent));  // of the last place; rounds to even
    if (std::isinf(x) || std::ldexp(units, exponent - 10) > 65504.0f) return {static_cast<uint16_t>(sign | 0x7C00u)};
    const unsigned whole = static_cast<unsigned>(units);  // 1024 and more are the hidden bit, and carry as they should
    const unsigned size = whole < 1024 ? whole : (static_cast<unsigned>(exponent + 14) << 10) + whole;
    return {static_cast<uint16_t>(sign | size)};
}
