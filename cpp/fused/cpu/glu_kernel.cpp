// SPDX-License-Identifier: MIT
// One half of a tensor times the logistic function of the other half, and the gradients of both, in one pass. Compiled
// once per instruction set.
#include "fused/cpu/glu_kernel.hpp"

#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector_math.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

// Runs of 1 to 8 numbers would fill half a vector at most: so many numbers of each half are gathered at a time.
constexpr int64_t kBlock = 1024;

/// Writes to memory, past the caches if `streams`.
template <bool streams, class T>
DNNSUITE_HD void put(const Vec<T>& v, T* to, int64_t count) {
    streams ? v.stream(to) : v.store(to, count);
}

template <bool streams = false, class T>
void forward_run(const T* a, const T* b, T* y, int64_t count) {
    for_each_vector(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        put<streams>(Vec<T>::load(a + i, n) * logistic(Vec<T>::load(b + i, n)), y + i, n);
    });
}

template <bool streams = false, class T>
void backward_run(const T* grad, const T* a, const T* b, T* da, T* db, int64_t count) {
    const Vec<T> one(T(1));
    for_each_vector(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const Vec<T> s = logistic(Vec<T>::load(b + i, n)), part = Vec<T>::load(grad + i, n) * s;
        const Vec<T> of_gate = part * (one - s) * Vec<T>::load(a + i, n);
        put<streams>(part, da + i, n);
        put<streams>(of_gate, db + i, n);
    });
}

/// Calls block(first row, rows) for the rows of tasks, `most` at a time.
template <class Block>
void for_each_block(const GluArguments& args, int64_t begin, int64_t end, int64_t most, const Block& block) {
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        const int64_t model = task.model * args.rows.rows;
        for (int64_t r = task.first_row; r < task.last_row; r += most)
            block(model + r, task.last_row - r < most ? task.last_row - r : most);
    }
}

/// Copies the halves of `rows` short rows, each into one piece.
template <int run, class T>
void gather(const T* x, T* a, T* b, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
        for (int i = 0; i < run; ++i) {
            a[r * run + i] = x[2 * r * run + i];
            b[r * run + i] = x[(2 * r + 1) * run + i];
        }
    }
}

template <int run, class T>
void scatter(const T* a, const T* b, T* x, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
        for (int i = 0; i < run; ++i) {
            x[2 * r * run + i] = a[r * run + i];
            x[(2 * r + 1) * run + i] = b[r * run + i];
        }
    }
}

/// True if all runs of a result begin at whole lines, and are.
bool runs_are_lines(const GluArguments& args, const void* result) {
    return args.run % kLanes == 0 && reinterpret_cast<uintptr_t>(result) % 64 == 0;
}

template <bool streams, class T>
void forward_long(const GluArguments& args, int64_t begin, int64_t end) {
    const int64_t run = args.run;
    const T* const x = at<T>(args.x, 0);
    T* const y = mutable_at<T>(args.y, 0);
    for_each_block(args, begin, end, 1, [&](int64_t row, int64_t) {
        forward_run<streams>(x + 2 * row * run, x + (2 * row + 1) * run, y + row * run, run);
    });
    if (streams) finish_streams();
}

template <class T>
void forward(const GluArguments& args, int64_t begin, int64_t end) {
    const bool streams = args.streams && runs_are_lines(args, args.y);
    streams ? forward_long<true, T>(args, begin, end) : forward_long<false, T>(args, begin, end);
}

template <bool streams, class T>
void backward_long(const GluArguments& args, int64_t begin, int64_t end) {
    const int64_t run = args.run;
    const T *const x = at<T>(args.x, 0), *const grad = at<T>(args.grad, 0);
    T* const dx = mutable_at<T>(args.dx, 0);
    for_each_block(args, begin, end, 1, [&](int64_t row, int64_t) {
        const int64_t first = 2 * row * run, gate = first + run;
        backward_run<streams>(grad + row * run, x + first, x + gate, dx + first, dx + gate, run);
    });
    if (streams) finish_streams();
}

template <class T>
void backward(const GluArguments& args, int64_t begin, int64_t end) {
    const bool streams = args.streams && runs_are_lines(args, args.dx);
    streams ? backward_long<true, T>(args, begin, end) : backward_long<false, T>(args, begin, end);
}

template <int run, class T>
void forward_short(const GluArguments& args, int64_t begin, int64_t end) {
    T a[kBlock], b[kBlock];
    for_each_block(args, begin, end, kBlock / run, [&](int64_t row, int64_t rows) {
        gather<run>(at<T>(args.x, 2 * row * run), a, b, rows);
        forward_run(a, b, mutable_at<T>(args.y, row * run), rows * run);
    });
}

template <int run, class T>
void backward_short(const GluArguments& args, int64_t begin, int64_t end) {
    T a[kBlock], b[kBlock];
    for_each_block(args, begin, end, kBlock / run, [&](int64_t row, int64_t rows) {
        gather<run>(at<T>(args.x, 2 * row * run), a, b, rows);
        backward_run(at<T>(args.grad, row * run), a, b, a, b, rows * run);
        scatter<run>(a, b, mutable_at<T>(args.dx, 2 * row * run), rows);
    });
}

}  // namespace

#define DNNSUITE_BY_RUN(direction, T)                             \
    switch (args.run) {                                           \
        case 1: return direction##_short<1, T>(args, begin, end); \
        case 2: return direction##_short<2, T>(args, begin, end); \
        case 3: return direction##_short<3, T>(args, begin, end); \
        case 4: return direction##_short<4, T>(args, begin, end); \
        case 5: return direction##_short<5, T>(args, begin, end); \
        case 6: return direction##_short<6, T>(args, begin, end); \
        case 7: return direction##_short<7, T>(args, begin, end); \
        case 8: return direction##_short<8, T>(args, begin, end); \
        default: return direction<T>(args, begin, end);           \
    }

void glu(const GluArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) {
        DNNSUITE_BY_RUN(forward, double)
    } else {
        DNNSUITE_BY_RUN(forward, float)
    }
}

void glu_backward(const GluArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) {
        DNNSUITE_BY_RUN(backward, double)
    } else {
        DNNSUITE_BY_RUN(backward, float)
    }
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
