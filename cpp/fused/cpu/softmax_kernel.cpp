// SPDX-License-Identifier: MIT
// Softmax along short rows, sixteen rows at a time: their numbers are turned so that each vector has one column.
// Compiled once per instruction set.
#include "fused/cpu/softmax_kernel.hpp"

#include "fused/cpu/tasks.hpp"
#include "fused/cpu/transpose.hpp"
#include "fused/cpu/vector_math.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

template <class T>
using Columns = T[SoftmaxArguments::kMostColumns * kLanes];

/// Of sixteen rows, whose length the compiler knows: it makes shuffles of such copies.
template <int columns, class T>
DNNSUITE_HD void turn_known(const T* rows, T* to) {
    for (int r = 0; r < kLanes; ++r)
        for (int c = 0; c < columns; ++c) to[c * kLanes + r] = rows[r * columns + c];
}

template <int columns, class T>
DNNSUITE_HD void turn_known_back(const T* from, T* rows) {
    for (int r = 0; r < kLanes; ++r)
        for (int c = 0; c < columns; ++c) rows[r * columns + c] = from[c * kLanes + r];
}

/// Of 1 to 16 rows; what is behind the last one repeats it.
template <class T>
DNNSUITE_HD void turn(const T* rows, int64_t columns, int64_t count, T* to) {
    if (count == kLanes) {
        if (columns == 2) return turn_known<2>(rows, to);
        if (columns == 3) return turn_known<3>(rows, to);
        return transpose_part(rows, columns, 0, kLanes, 0, columns, T(1), to, kLanes);
    }
    for (int64_t c = 0; c < columns; ++c, to += kLanes)
        for (int64_t r = 0; r < kLanes; ++r) to[r] = rows[(r < count ? r : count - 1) * columns + c];
}

template <class T>
DNNSUITE_HD void turn_back(const T* from, int64_t columns, int64_t count, T* rows) {
    if (count == kLanes) {
        if (columns == 2) return turn_known_back<2>(from, rows);
        if (columns == 3) return turn_known_back<3>(from, rows);
        return transpose_part(from, kLanes, 0, columns, 0, kLanes, T(1), rows, columns);
    }
    for (int64_t c = 0; c < columns; ++c, from += kLanes)
        for (int64_t r = 0; r < count; ++r) rows[r * columns + c] = from[r];
}

/// Calls block(first number, rows) for sixteen rows of a task at a time.
template <class Block>
void for_each_block(const SoftmaxArguments& args, int64_t begin, int64_t end, const Block& block) {
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        for (int64_t r = task.first_row; r < task.last_row; r += kLanes)
            block((task.model * args.rows.rows + r) * args.rows.columns,
                  task.last_row - r < kLanes ? task.last_row - r : int64_t{kLanes});
    }
}

template <bool log, class T>
void forward(const SoftmaxArguments& args, int64_t begin, int64_t end) {
    const int64_t C = args.rows.columns;
    Columns<T> numbers;
    for_each_block(args, begin, end, [&](int64_t first, int64_t rows) {
        turn(at<T>(args.x, first), C, rows, numbers);
        Vec<T> most = Vec<T>::load(numbers), sum(T(0));
        for (int64_t c = 1; c < C; ++c) most = maximum(most, Vec<T>::load(numbers + c * kLanes));
        for (int64_t c = 0; c < C; ++c) {
            const Vec<T> x = Vec<T>::load(numbers + c * kLanes) - most, e = exponential(x);
            sum = sum + e;
            (log ? x : e).store(numbers + c * kLanes);
        }
        const Vec<T> last = log ? logarithm(sum) : Vec<T>(T(1)) / sum;
        for (int64_t c = 0; c < C; ++c) {
            const Vec<T> x = Vec<T>::load(numbers + c * kLanes);
            (log ? x - last : x * last).store(numbers + c * kLanes);
        }
        turn_back(numbers, C, rows, mutable_at<T>(args.y, first));
    });
}

template <bool log, class T>
void backward(const SoftmaxArguments& args, int64_t begin, int64_t end) {
    const int64_t C = args.rows.columns;
    Columns<T> results, grads;
    for_each_block(args, begin, end, [&](int64_t first, int64_t rows) {
        turn(at<T>(args.x, first), C, rows, results);
        turn(at<T>(args.grad, first), C, rows, grads);
        Vec<T> sum(T(0));
        for (int64_t c = 0; c < C; ++c) {
            const Vec<T> g = Vec<T>::load(grads + c * kLanes);
            sum = sum + (log ? g : g * Vec<T>::load(results + c * kLanes));
        }
        for (int64_t c = 0; c < C; ++c) {
            const Vec<T> y = Vec<T>::load(results + c * kLanes), g = Vec<T>::load(grads + c * kLanes);
            (log ? g - exponential(y) * sum : y * (g - sum)).store(grads + c * kLanes);
        }
        turn_back(grads, C, rows, mutable_at<T>(args.y, first));
    });
}

}  // namespace

void softmax(const SoftmaxArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64)
        return args.log ? forward<true, double>(args, begin, end) : forward<false, double>(args, begin, end);
    args.log ? forward<true, float>(args, begin, end) : forward<false, float>(args, begin, end);
}

void softmax_backward(const SoftmaxArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64)
        return args.log ? backward<true, double>(args, begin, end) : backward<false, double>(args, begin, end);
    args.log ? backward<true, float>(args, begin, end) : backward<false, float>(args, begin, end);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
