// SPDX-License-Identifier: MIT
#include "fused/cpu/small_gemm.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "fused/cpu/transpose.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

/// Small whole numbers: products and sums are exact.
template <class T>
std::vector<T> numbers(int64_t count, int seed) {
    std::vector<T> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = T((i * 7 + seed) % 11 - 5);
    return values;
}

template <class T>
void expect_product(int64_t rows, int64_t columns, int64_t depth, bool transposed) {
    const auto a = numbers<T>(rows * depth, 3), b = numbers<T>(depth * columns, 5);
    std::vector<T> c(static_cast<size_t>(rows * columns), T(-99));
    const Strided<T> left{a.data(), transposed ? 1 : depth, transposed ? rows : 1};
    small_gemm(left, b.data(), columns, c.data(), columns, rows, columns, depth);
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
            T exact = T(0);
            for (int64_t k = 0; k < depth; ++k)
                exact += left.data[i * left.row + k * left.column] * b[static_cast<size_t>(k * columns + j)];
            ASSERT_EQ(c[static_cast<size_t>(i * columns + j)], exact) << i << ", " << j;
        }
    }
}

TEST(SmallGemm, IsAProduct) {
    for (int64_t rows : {1, 5, 8, 19}) {
        for (int64_t columns : {16, 32, 48}) {
            for (int64_t depth : {1, 7, 16}) {
                expect_product<float>(rows, columns, depth, false);
                expect_product<float>(rows, columns, depth, true);
            }
        }
    }
    expect_product<double>(9, 32, 5, true);
}

template <class T>
void expect_transpose(int64_t rows, int64_t columns) {
    const int64_t stride = columns + 3, ld = rows + 5;
    const auto from = numbers<T>(rows * stride, 1);
    std::vector<T> to(static_cast<size_t>(columns * ld), T(-99));
    pack_transposed(from.data(), stride, rows, columns, T(2), to.data(), ld);
    for (int64_t c = 0; c < columns; ++c) {
        for (int64_t r = 0; r < ld; ++r) {
            const T exact = r < rows ? 2 * from[static_cast<size_t>(r * stride + c)] : T(0);
            ASSERT_EQ(to[static_cast<size_t>(c * ld + r)], exact) << r << ", " << c;
        }
    }
}

TEST(Transpose, OfAnyShape) {
    for (int64_t rows : {1, 4, 7, 32}) {
        for (int64_t columns : {1, 4, 6, 16}) {
            expect_transpose<float>(rows, columns);
            expect_transpose<double>(rows, columns);
        }
    }
}

}  // namespace
}  // namespace dnnsuite::fused::DNNSUITE_ISA
