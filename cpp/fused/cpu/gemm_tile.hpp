// SPDX-License-Identifier: MIT
// The inner loops of cpu/gemm_kernel.cpp: a tile of C stays in registers over the whole sum. Every element is one sum
// over k in order, begun with the bias, so its bits do not depend on how C is cut into tiles.
#pragma once

#include "fused/cpu/reduction.hpp"
#include "fused/cpu/small_gemm.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Memory that is read after this product: tiles ask for it, a line of the cache for each step of their sums, while
/// they compute.
struct Ahead {
    static constexpr int64_t kLine = 64;
    const char *next, *end;
};

/// Arithmetic of a tile: C[Rows, columns] = init + A B; the last of its vectors has `last` (1 to 16) columns.
template <class T>
struct TileArguments {
    Strided<T> a;
    const T* b;
    int64_t ldb, depth;
    const T* init;  // one number per column, or null
    T* c;
    int64_t ldc, last;
    bool more;  // C already holds the sum over what came before
    // The sum goes over so many pieces of `depth`; from the end of one to the begin of the next these numbers are skipped.
    int64_t pieces = 1, a_skip = 0, b_skip = 0;
    Ahead* ahead = nullptr;
};

template <int Rows, int Vectors, bool Partial, class T>
__attribute__((noinline)) void tile(const TileArguments<T>& t) {
    constexpr int kWhole = Partial ? Vectors - 1 : Vectors;
    Vec<T> sum[Rows][Vectors];
    _Pragma("GCC unroll 4") for (int v = 0; v < Vectors; ++v) {
        Vec<T> start(T(0));
        if (t.init != nullptr)
            start = v < kWhole ? Vec<T>::load(t.init + v * kLanes) : Vec<T>::load(t.init + v * kLanes, t.last);
        _Pragma("GCC unroll 16") for (int r = 0; r < Rows; ++r) sum[r][v] = start;
    }
    if (t.more) {
        _Pragma("GCC unroll 16") for (int r = 0; r < Rows; ++r) {
            const T* from = t.c + r * t.ldc;
            _Pragma("GCC unroll 4") for (int v = 0; v < Vectors; ++v) sum[r][v] =
                v < kWhole ? Vec<T>::load(from + v * kLanes) : Vec<T>::load(from + v * kLanes, t.last);
        }
    }
    const T *a = t.a.data, *b = t.b;
    const int64_t row = t.a.row, column = t.a.column, ldb = t.ldb, last = t.last;
    constexpr bool kAsks = Rows >= 8 && !Partial;
    const bool asks = kAsks && t.ahead != nullptr && t.ahead->next < t.ahead->end;
    const char* next = asks ? t.ahead->next : reinterpret_cast<const char*>(b);
    const int64_t line = asks ? Ahead::kLine : 0;
    for (int64_t piece = 0; piece < t.pieces; ++piece, a += t.a_skip, b += t.b_skip) {
        for (int64_t k = 0; k < t.depth; ++k, a += column, b += ldb) {
            if constexpr (kAsks) __builtin_prefetch(next), next += line;
            Vec<T> right[Vectors];
            _Pragma("GCC unroll 4") for (int v = 0; v < Vectors; ++v) right[v] =
                v < kWhole ? Vec<T>::load(b + v * kLanes) : Vec<T>::load(b + v * kLanes, last);
            _Pragma("GCC unroll 16") for (int r = 0; r < Rows; ++r) {
                const Vec<T> left(a[r * row]);
                _Pragma("GCC unroll 4") for (int v = 0; v < Vectors; ++v) sum[r][v] = sum[r][v] + left * right[v];
            }
        }
    }
    if (asks) t.ahead->next = next;
    _Pragma("GCC unroll 16") for (int r = 0; r < Rows; ++r) {
        T* to = t.c + r * t.ldc;
        _Pragma("GCC unroll 4") for (int v = 0; v < Vectors; ++v) {
            if (v < kWhole)
                sum[r][v].store(to + v * kLanes);
            else
                sum[r][v].store(to + v * kLanes, last);
        }
    }
}

// As many sums as the registers hold: 12 x 2 of 32 with AVX-512, 6 x 2 of 16 with AVX2, 6 x 4 of 32 with NEON. A double
// takes two registers.
#if defined(__AVX512F__)
template <class T>
constexpr int kMostRows = sizeof(T) == 4 ? 12 : 6;
constexpr int kMostVectors = 2;
#elif defined(__AVX2__)
template <class T>
constexpr int kMostRows = sizeof(T) == 4 ? 6 : 3;
constexpr int kMostVectors = 1;
#elif defined(__aarch64__)
template <class T>
constexpr int kMostRows = sizeof(T) == 4 ? 6 : 2;
constexpr int kMostVectors = 1;
#else
template <class T>
constexpr int kMostRows = 2;
constexpr int kMostVectors = 1;
#endif

/// Tiles of `Rows` rows while there are so many, then smaller ones.
template <int Rows, int Vectors, bool Partial, class T>
void tiles(TileArguments<T>& t, int64_t& rows) {
    for (; rows >= Rows; rows -= Rows) {
        tile<Rows, Vectors, Partial>(t);
        t.a.data += Rows * t.a.row;
        t.c += Rows * t.ldc;
    }
}

template <int Vectors, bool Partial, class T>
void column_of_tiles(TileArguments<T> t, int64_t rows) {
    if (kMostRows<T> != 12 || rows != 16) tiles<kMostRows<T>, Vectors, Partial>(t, rows);  // 16 are better 8 and 8
    if constexpr (kMostRows<T> > 8) tiles<8, Vectors, Partial>(t, rows);
    if constexpr (kMostRows<T> > 6) tiles<6, Vectors, Partial>(t, rows);
    if constexpr (kMostRows<T> > 4) tiles<4, Vectors, Partial>(t, rows);
    if constexpr (kMostRows<T> > 2) tiles<2, Vectors, Partial>(t, rows);
    tiles<1, Vectors, Partial>(t, rows);
}

/// C[rows, columns] = init + A B.
template <class T>
void product(TileArguments<T> t, int64_t rows, int64_t columns) {
    for (; columns > 0; columns -= kMostVectors * kLanes) {
        const int64_t vectors = columns >= kMostVectors * kLanes ? kMostVectors : (columns + kLanes - 1) / kLanes;
        const bool partial = columns < vectors * kLanes;
        t.last = partial ? columns - (vectors - 1) * kLanes : kLanes;
        if (vectors == kMostVectors)
            partial ? column_of_tiles<kMostVectors, true>(t, rows) : column_of_tiles<kMostVectors, false>(t, rows);
        else
            partial ? column_of_tiles<1, true>(t, rows) : column_of_tiles<1, false>(t, rows);
        t.b += kMostVectors * kLanes;
        t.c += kMostVectors * kLanes;
        if (t.init != nullptr) t.init += kMostVectors * kLanes;
    }
}

/// C[Rows, Columns] = init + A B where both run over k one after the other, as B = weight^T does: sums in lanes, which
/// are added at the end. For few rows it is quicker than to pack B.
template <int Rows, int Columns, class T>
__attribute__((noinline)) void dot_tile(const TileArguments<T>& t) {
    Vec<T> lanes[Rows][Columns];
    _Pragma("GCC unroll 4") for (int r = 0; r < Rows; ++r) {
        _Pragma("GCC unroll 4") for (int j = 0; j < Columns; ++j) lanes[r][j] = Vec<T>(T(0));
    }
    const T *a = t.a.data, *b = t.b;
    const auto step = [&](int64_t k, auto load) __attribute__((always_inline)) {
        Vec<T> left[Rows];
        _Pragma("GCC unroll 4") for (int r = 0; r < Rows; ++r) left[r] = load(a + r * t.a.row + k);
        _Pragma("GCC unroll 4") for (int j = 0; j < Columns; ++j) {
            const Vec<T> right = load(b + j * t.ldb + k);
            _Pragma("GCC unroll 4") for (int r = 0; r < Rows; ++r) lanes[r][j] = lanes[r][j] + left[r] * right;
        }
    };
    for (int64_t piece = 0; piece < t.pieces; ++piece, a += t.depth + t.a_skip, b += t.depth + t.b_skip) {
        int64_t k = 0;
        for (; k + kLanes <= t.depth; k += kLanes)
            step(k, [](const T* from) __attribute__((always_inline)) { return Vec<T>::load(from); });
        if (const int64_t rest = t.depth - k; rest > 0)
            step(k, [rest](const T* from) __attribute__((always_inline)) { return Vec<T>::load(from, rest); });
    }
    _Pragma("GCC unroll 4") for (int r = 0; r < Rows; ++r) {
        _Pragma("GCC unroll 4") for (int j = 0; j < Columns; ++j) {
            T& to = t.c[r * t.ldc + j];
            to = (t.more ? to : t.init == nullptr ? T(0) : t.init[j]) + sum(lanes[r][j]);
        }
    }
}

template <int Rows, class T>
void dot_rows(TileArguments<T> t, int64_t columns) {
    const auto next = [&](int64_t count) {
        t.b += count * t.ldb;
        t.c += count;
        if (t.init != nullptr) t.init += count;
        columns -= count;
    };
    for (; columns >= 4; next(4)) dot_tile<Rows, 4>(t);
    for (; columns > 0; next(1)) dot_tile<Rows, 1>(t);
}

/// C[rows, columns] = init + A B, with b[j * ldb + k].
template <class T>
void dot_product(TileArguments<T> t, int64_t rows, int64_t columns) {
    const auto next = [&](int64_t count) {
        t.a.data += count * t.a.row;
        t.c += count * t.ldc;
        rows -= count;
    };
    for (; rows >= 4; next(4)) dot_rows<4>(t, columns);
    for (; rows > 0; next(1)) dot_rows<1>(t, columns);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
