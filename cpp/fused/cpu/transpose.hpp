// SPDX-License-Identifier: MIT
#pragma once

#include "fused/cpu/reduction.hpp"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace dnnsuite::fused::DNNSUITE_ISA {

/// A 4 x 4 block, scaled.
DNNSUITE_HD void transpose_block(const float* from, int64_t stride, float scale, float* to, int64_t ld) {
    Quad row[4];
    _Pragma("GCC unroll 4") for (int r = 0; r < 4; ++r) {
        __builtin_memcpy(&row[r], from + r * stride, sizeof(Quad));
        row[r] = row[r] * scale;
    }
    const Quad low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    const Quad low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    const Quad high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    const Quad high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    const Quad column[4] = {
        __builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
        __builtin_shufflevector(high01, high23, 0, 1, 4, 5), __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
    _Pragma("GCC unroll 4") for (int c = 0; c < 4; ++c) __builtin_memcpy(to + c * ld, &column[c], sizeof(Quad));
}
DNNSUITE_HD void transpose_block(const double* from, int64_t stride, double scale, double* to, int64_t ld) {
    for (int r = 0; r < 4; ++r) {
        for (int c = 0; c < 4; ++c) to[c * ld + r] = from[r * stride + c] * scale;
    }
}

/// Rows [r0, r1) and columns [c0, c1) of pack_transposed, in blocks of four.
template <class T>
void transpose_part(const T* from, int64_t stride, int64_t r0, int64_t r1, int64_t c0, int64_t c1, T scale, T* to,
                    int64_t ld) {
    const int64_t whole_rows = r0 + (r1 - r0) / 4 * 4, whole_columns = c0 + (c1 - c0) / 4 * 4;
    for (int64_t c = c0; c < whole_columns; c += 4) {
        for (int64_t r = r0; r < whole_rows; r += 4)
            transpose_block(from + r * stride + c, stride, scale, to + c * ld + r, ld);
    }
    for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = c < whole_columns ? whole_rows : r0; r < r1; ++r)
            to[c * ld + r] = from[r * stride + c] * scale;
    }
}

constexpr int64_t kBlock = 16;  // of transpose_blocks

/// As transpose_part for what consists of blocks of sixteen; returns whether it was done.
template <class T>
bool transpose_blocks(const T*, int64_t, int64_t, int64_t, T, T*, int64_t) {
    return false;
}
#if defined(__AVX512F__)
/// A 16 x 16 block: pairs of lanes, then quads, then the quads of four rows are brought together.
DNNSUITE_HD void transpose_sixteen(const float* from, int64_t stride, __m512 scale, float* to, int64_t ld) {
    __m512 x[kBlock], y[kBlock];
    _Pragma("GCC unroll 16") for (int r = 0; r < 16; ++r) x[r] =
        _mm512_mul_ps(_mm512_loadu_ps(from + r * stride), scale);
    _Pragma("GCC unroll 8") for (int r = 0; r < 16; r += 2) {
        y[r] = _mm512_unpacklo_ps(x[r], x[r + 1]);
        y[r + 1] = _mm512_unpackhi_ps(x[r], x[r + 1]);
    }
    _Pragma("GCC unroll 4") for (int r = 0; r < 16; r += 4) {
        _Pragma("GCC unroll 2") for (int i = 0; i < 2; ++i) {
            const __m512d low = _mm512_castps_pd(y[r + i]), high = _mm512_castps_pd(y[r + 2 + i]);
            x[r + 2 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            x[r + 2 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 4;
                                 ++i) {  // x[4 q + i]: column 4 l + i of rows 4 q to 4 q + 3 in quad l
        const __m512 a = _mm512_shuffle_f32x4(x[i], x[4 + i], 0x88), b = _mm512_shuffle_f32x4(x[i], x[4 + i], 0xDD);
        const __m512 c = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0x88);
        const __m512 d = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0xDD);
        _mm512_storeu_ps(to + i * ld, _mm512_shuffle_f32x4(a, c, 0x88));
        _mm512_storeu_ps(to + (4 + i) * ld, _mm512_shuffle_f32x4(b, d, 0x88));
        _mm512_storeu_ps(to + (8 + i) * ld, _mm512_shuffle_f32x4(a, c, 0xDD));
        _mm512_storeu_ps(to + (12 + i) * ld, _mm512_shuffle_f32x4(b, d, 0xDD));
    }
}
inline bool transpose_blocks(const float* from, int64_t stride, int64_t rows, int64_t columns, float scale, float* to,
                             int64_t ld) {
    for (int64_t c = 0; c < columns; c += kBlock) {
        for (int64_t r = 0; r < rows; r += kBlock)
            transpose_sixteen(from + r * stride + c, stride, _mm512_set1_ps(scale), to + c * ld + r, ld);
    }
    return true;
}
#endif

/// A matrix [rows, columns], scaled, to its transpose [columns, rows], whose rows are `ld` apart.
template <class T>
void transpose_matrix(const T* from, int64_t stride, int64_t rows, int64_t columns, T scale, T* to, int64_t ld) {
    int64_t done_rows = rows / kBlock * kBlock, done_columns = columns / kBlock * kBlock;
    if (!transpose_blocks(from, stride, done_rows, done_columns, scale, to, ld)) done_rows = done_columns = 0;
    transpose_part(from, stride, done_rows, rows, int64_t{0}, done_columns, scale, to, ld);
    transpose_part(from, stride, int64_t{0}, rows, done_columns, columns, scale, to, ld);
}

/// The same, padded with zeros to ld >= rows.
template <class T>
void pack_transposed(const T* from, int64_t stride, int64_t rows, int64_t columns, T scale, T* to, int64_t ld) {
    transpose_matrix(from, stride, rows, columns, scale, to, ld);
    for (int64_t c = 0; c < columns && rows < ld; ++c) {
        for (int64_t r = rows; r < ld; ++r) to[c * ld + r] = T(0);
    }
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
