// SPDX-License-Identifier: MIT
// C = A B for matrices that fit in cache. B and C are rows of whole vectors (padded), A is read number by number
// with any strides, so a transpose of A costs nothing. Every element is one sum over k in order.
#pragma once

#include "fused/cpu/vector.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// A(m, k) = data[m * row + k * column].
template <class T>
struct Strided {
    const T* data;
    int64_t row, column;
};

/// `Rows` rows of C by `Vectors` vectors, all kept in registers over the sum.
template <int Rows, int Vectors, class T>
DNNSUITE_HD void gemm_tile(const Strided<T>& a, const T* b, int64_t ldb, T* c, int64_t ldc, int64_t depth) {
    Vec<T> sum[Rows][Vectors];
    _Pragma("GCC unroll 16") for (int r = 0; r < Rows; ++r) {
        _Pragma("GCC unroll 4") for (int v = 0; v < Vectors; ++v) sum[r][v] = Vec<T>(T(0));
    }
    for (int64_t k = 0; k < depth; ++k) {
        Vec<T> right[Vectors];
        _Pragma("GCC unroll 4") for (int v = 0; v < Vectors; ++v) right[v] = Vec<T>::load(b + k * ldb + v * kLanes);
        _Pragma("GCC unroll 16") for (int r = 0; r < Rows; ++r) {
            const Vec<T> left(a.data[r * a.row + k * a.column]);
            _Pragma("GCC unroll 4") for (int v = 0; v < Vectors; ++v) sum[r][v] = sum[r][v] + left * right[v];
        }
    }
    _Pragma("GCC unroll 16") for (int r = 0; r < Rows; ++r) {
        _Pragma("GCC unroll 4") for (int v = 0; v < Vectors; ++v) sum[r][v].store(c + r * ldc + v * kLanes);
    }
}

// As many sums as the registers hold.
#if defined(__AVX512F__)
constexpr int kTileRows = 8, kTileVectors = 2;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr int kTileRows = 6, kTileVectors = 1;
#else
constexpr int kTileRows = 2, kTileVectors = 1;
#endif

template <int Vectors, class T>
DNNSUITE_HD void gemm_column(const Strided<T>& a, const T* b, int64_t ldb, T* c, int64_t ldc, int64_t rows,
                             int64_t depth) {
    int64_t r = 0;
    for (; r + kTileRows <= rows; r += kTileRows)
        gemm_tile<kTileRows, Vectors>(Strided<T>{a.data + r * a.row, a.row, a.column}, b, ldb, c + r * ldc, ldc, depth);
    for (; r < rows; ++r)
        gemm_tile<1, Vectors>(Strided<T>{a.data + r * a.row, a.row, a.column}, b, ldb, c + r * ldc, ldc, depth);
}

/// `columns` is a multiple of 16.
template <class T>
__attribute__((noinline)) void small_gemm(const Strided<T>& a, const T* b, int64_t ldb, T* c, int64_t ldc, int64_t rows,
                                          int64_t columns, int64_t depth) {
    int64_t j = 0;
    for (; j + kTileVectors * kLanes <= columns; j += kTileVectors * kLanes)
        gemm_column<kTileVectors>(a, b + j, ldb, c + j, ldc, rows, depth);
    for (; j < columns; j += kLanes) gemm_column<1>(a, b + j, ldb, c + j, ldc, rows, depth);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
