// SPDX-License-Identifier: MIT
#pragma once

#include "fused/cpu/reduction.hpp"

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

/// A matrix [rows, columns], scaled, to its transpose [columns, ld], padded with zeros to ld >= rows.
template <class T>
void pack_transposed(const T* from, int64_t stride, int64_t rows, int64_t columns, T scale, T* to, int64_t ld) {
    const int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
    for (int64_t c = 0; c < whole_columns; c += 4) {
        for (int64_t r = 0; r < whole_rows; r += 4)
            transpose_block(from + r * stride + c, stride, scale, to + c * ld + r, ld);
    }
    for (int64_t c = 0; c < columns; ++c) {
        for (int64_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r)
            to[c * ld + r] = from[r * stride + c] * scale;
        for (int64_t r = rows; r < ld; ++r) to[c * ld + r] = T(0);
    }
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
