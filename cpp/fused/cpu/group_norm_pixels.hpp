// SPDX-License-Identifier: MIT
// Group norm of one sample that lies with the channels last. Some columns are read over a part of the rows that fits L1,
// their parameters and sums in registers. Where that is not the order in memory, and the sample is larger than L1, the
// processor does not fetch ahead, and what is written is written row by row. So the next part is fetched while one is
// read, and the next sample while one is written: else memory would rest. Backward finds the statistics and the sums of
// the gradient in one pass.
#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "fused/cpu/batch_norm_loops.hpp"
#include "fused/cpu/reduction.hpp"
#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector_math.hpp"
#include "fused/norm_arguments.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

constexpr int64_t kPartBytes = 16 * 1024;             // of each tensor that is read
constexpr int64_t kSmallBytes = 32 * 1024;            // of a sample that fits L1
constexpr int64_t kFetchBytes = 512 * 1024;           // of what is read of a sample, at most, to fetch the next
constexpr int64_t kSamples = 4;                       // pixels that the shift is the mean of
constexpr int kBlock = kRegisterBytes == 64 ? 5 : 1;  // vectors of columns whose sums fit the registers

/// Some rows of `columns` numbers, from the element `first` on.
struct Part {
    int64_t first, rows, columns;
};

/// Calls body for up to `most` vectors of `left`, and returns how many.
template <int most, class Body>
DNNSUITE_HD int64_t whole_vectors(int64_t left, int64_t column, const Body& body) {
    if constexpr (most > 1)
        if (left < most) return whole_vectors<most - 1>(left, column, body);
    body(std::integral_constant<int, most>(), column, int64_t{kLanes});
    return most;
}

/// Calls body(vectors, a constant; first column, numbers of each vector) over the columns of a part.
template <class Body>
DNNSUITE_HD void for_each_columns(int64_t columns, const Body& body) {
    int64_t i = 0;
    while (i + kLanes <= columns) i += kLanes * whole_vectors<kBlock>((columns - i) / kLanes, i, body);
    if (i < columns) body(std::integral_constant<int, 1>(), i, columns - i);
}

#define DNNSUITE_VECTORS _Pragma("GCC unroll 5") for (int v = 0; v < vectors; ++v)

/// Adds x - shift and its square, and (with `grads`) g and g * (x - shift), to sums [2 or 4, ld].
template <int vectors, bool grads, class T>
DNNSUITE_HD void add_columns(const T* x, const T* grad, int64_t stride, int64_t rows, int64_t n, const T* shift,
                             T* sums, int64_t ld, int64_t ahead) {
    constexpr int kSums = grads ? 4 : 2;
    Vec<T> s[vectors], total[vectors][kSums];
    DNNSUITE_VECTORS {
        s[v] = Vec<T>::load(shift + v * kLanes, n);
        _Pragma("GCC unroll 5") for (int k = 0; k < kSums; ++k) total[v][k] = Vec<T>(T(0));
    }
    for (int64_t r = 0; r < rows; ++r, x += stride, grad += grads ? stride : 0) {
        DNNSUITE_VECTORS {
            fetch(x + v * kLanes, ahead);
            const Vec<T> d = Vec<T>::load(x + v * kLanes, n) - s[v];
            total[v][0] = total[v][0] + d;
            total[v][1] = total[v][1] + d * d;
            if constexpr (grads) {
                fetch(grad + v * kLanes, ahead);
                const Vec<T> g = Vec<T>::load(grad + v * kLanes, n);
                total[v][2] = total[v][2] + g;
                total[v][3] = total[v][3] + g * d;
            }
        }
    }
    DNNSUITE_VECTORS {
        _Pragma("GCC unroll 5") for (int k = 0; k < kSums; ++k) {
            T* to = sums + k * ld + v * kLanes;
            (Vec<T>::load(to, n) + total[v][k]).store(to, n);
        }
    }
}

template <bool streams, class T>
DNNSUITE_HD void put(const Vec<T>& v, T* to, int64_t n) {
    streams ? v.stream(to) : v.store(to, n);
}

/// y = (x - mean) * scale + bias.
template <int vectors, bool streams, class T>
DNNSUITE_HD void normalise_columns(const T* x, T* y, int64_t stride, int64_t rows, int64_t n, const T* mean,
                                   const T* scale, const T* bias, int64_t ahead) {
    Vec<T> m[vectors], a[vectors], b[vectors];
    DNNSUITE_VECTORS {
        const int64_t i = v * kLanes;
        m[v] = Vec<T>::load(mean + i, n), a[v] = Vec<T>::load(scale + i, n), b[v] = Vec<T>::load(bias + i, n);
    }
    for (int64_t r = 0; r < rows; ++r, x += stride, y += stride) {
        DNNSUITE_VECTORS {
            fetch(x + v * kLanes, ahead);
            const Vec<T> d = Vec<T>::load(x + v * kLanes, n) - m[v];
            put<streams>(d * a[v] + b[v], y + v * kLanes, n);
        }
    }
}

/// dx = g * scale - (x - mean) * curve - level.
template <int vectors, bool streams, class T>
DNNSUITE_HD void gradient_columns(const T* x, const T* grad, T* dx, int64_t stride, int64_t rows, int64_t n,
                                  const T* mean, const T* scale, const T* curve, const T* level, int64_t ahead) {
    Vec<T> m[vectors], a[vectors], c[vectors], l[vectors];
    DNNSUITE_VECTORS {
        const int64_t i = v * kLanes;
        m[v] = Vec<T>::load(mean + i, n), a[v] = Vec<T>::load(scale + i, n);
        c[v] = Vec<T>::load(curve + i, n), l[v] = Vec<T>::load(level + i, n);
    }
    for (int64_t r = 0; r < rows; ++r, x += stride, grad += stride, dx += stride) {
        DNNSUITE_VECTORS {
            fetch(x + v * kLanes, ahead), fetch(grad + v * kLanes, ahead);
            const Vec<T> d = Vec<T>::load(x + v * kLanes, n) - m[v];
            put<streams>(Vec<T>::load(grad + v * kLanes, n) * a[v] - (d * c[v] + l[v]), dx + v * kLanes, n);
        }
    }
}

#undef DNNSUITE_VECTORS

template <class T>
T sum_of(const T* values, int64_t count) {
    Vec<T> total(T(0));
    for_each_vector(count, [&](int64_t i, int64_t n) { total = total + Vec<T>::load(values + i, n); });
    return sum(total);
}

/// One sample. Small pixels lie several to a row; column j is then of channel j % channels.
template <class T>
struct Pixels {
    const GroupNormArguments& args;
    const int64_t channels, columns, elements, each, ld;
    const bool by_rows;                                               // what is written
    int64_t ahead = 0;                                                // the sample to come, if it is to be fetched
    T *shift, *mean, *inverse, *scale, *bias, *curve, *level, *sums;  // of a column; sums [4, ld]

    Pixels(const GroupNormArguments& a, void* scratch)
        : args(a), channels(a.channels), columns(a.columns), elements(a.channels * a.inner),
          each(a.channels / a.groups), ld(padded(a.columns)),
          by_rows(columns > kBlock * kLanes && elements * static_cast<int64_t>(sizeof(T)) > kSmallBytes) {
        const uintptr_t line = 64;
        T* place = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(scratch) + line - 1) / line * line);
        for (T** at : {&shift, &mean, &inverse, &scale, &bias, &curve, &level, &sums}) {
            *at = place;
            place += ld;
        }
    }

    /// Says which sample is the next, so many numbers behind this one: it is fetched while this one is written, unless it
    /// is read in the order of memory, where the processor does so better.
    void then(int64_t numbers) {
        const int64_t tensors = args.grad == nullptr ? 1 : 2;
        const bool fits = tensors * elements * static_cast<int64_t>(sizeof(T)) <= kFetchBytes;
        ahead = by_rows && fits ? numbers : 0;
    }

    /// Calls group(first channel) for each.
    template <class Body>
    void for_each_group(const Body& group) const {
        for (int64_t c = 0; c < channels; c += each) group(c);
    }

    int64_t rows_of_part() const {
        return std::max(kPartBytes / (columns * static_cast<int64_t>(sizeof(T))), int64_t{1});
    }

    /// Calls body(part) for all rows.
    template <class Body>
    void for_each_part(const Body& body) const {
        const int64_t rows = elements / columns, step = rows_of_part();
        for (int64_t r = 0; r < rows; r += step) body(Part{r * columns, std::min(step, rows - r), columns});
        if (rows * columns < elements) body(Part{rows * columns, 1, elements - rows * columns});
    }

    /// Calls body(vectors, streams, both constants; rows, first element, first column, numbers of each vector) for what is
    /// written, from `to` on.
    template <class Body>
    DNNSUITE_HD void write(const T* to, const Body& body) const {
        const bool whole = columns % kLanes == 0 && elements % kLanes == 0;
        if (args.streams && whole && reinterpret_cast<uintptr_t>(to) % 64 == 0) {
            write_all(std::true_type(), body);
            finish_streams();
        } else {
            write_all(std::false_type(), body);
        }
    }
    template <class Streams, class Body>
    DNNSUITE_HD void write_all(Streams streams, const Body& body) const {
        if (by_rows) {
            for (int64_t first = 0; first < elements; first += columns) {
                for_each_vector(std::min(columns, elements - first),
                                [&](int64_t i, int64_t n) __attribute__((always_inline)) {
                                    body(std::integral_constant<int, 1>(), streams, int64_t{1}, first + i, i, n);
                                });
            }
            return;
        }
        for_each_part([&](Part part) {
            for_each_columns(part.columns, [&](auto vectors, int64_t i, int64_t n) __attribute__((always_inline)) {
                body(vectors, streams, part.rows, part.first + i, i, n);
            });
        });
    }

    /// Repeats what the channels have for the other pixels of a row.
    void spread(std::initializer_list<T*> parameters) const {
        for (T* to : parameters) {
            for (int64_t j = channels; j < columns; j += channels)
                std::memcpy(to + j, to, static_cast<size_t>(channels) * sizeof(T));
        }
    }

    /// The mean of a few pixels of the group, for each channel: what is left of a value loses no digits.
    void choose_shift(const T* x) const {
        const int64_t count = std::min(args.inner, kSamples);
        if (each == 1) {
            for_each_vector(channels, [&](int64_t c, int64_t n) __attribute__((always_inline)) {
                Vec<T> total(T(0));
                for (int64_t k = 0; k < count; ++k) total = total + Vec<T>::load(x + k * channels + c, n);
                (total / Vec<T>(static_cast<T>(count))).store(shift + c, n);
            });
            return spread({shift});
        }
        for_each_group([&](int64_t c) {
            T total(0);
            for (int64_t k = 0; k < count; ++k) total += sum_of(x + k * channels + c, each);
            fill(shift + c, each, total / static_cast<T>(count * each));
        });
        spread({shift});
    }

    /// `sums` of the channels: of x - shift and its square, and, if there is a gradient, of it and its product with the
    /// first.
    template <bool grads>
    void add_up(const T* x, const T* grad) const {
        constexpr int64_t kSums = grads ? 4 : 2;
        fill(sums, kSums * ld, T(0));
        const int64_t part_ahead = by_rows ? rows_of_part() * columns : kAhead;
        for_each_part([&](Part part) {
            for_each_columns(part.columns, [&](auto vectors, int64_t i, int64_t n) __attribute__((always_inline)) {
                add_columns<decltype(vectors)::value, grads>(x + part.first + i,
                                                             grads ? grad + part.first + i : nullptr, columns,
                                                             part.rows, n, shift + i, sums + i, ld, part_ahead);
            });
        });
        for (int64_t k = 0; k < kSums; ++k) {
            for (int64_t j = channels; j < columns; j += channels) add_to(sums + k * ld, sums + k * ld + j);
        }
    }
    void add_to(T* __restrict to, const T* __restrict from) const {
        for (int64_t c = 0; c < channels; ++c) to[c] += from[c];
    }

    /// `mean` and `inverse` of the channels, from `sums`.
    void find_statistics() const {
        if (each == 1) return find_statistics_of_channels();
        const double n = static_cast<double>(each * args.inner);
        for_each_group([&](int64_t c) {
            const double shifted = static_cast<double>(sum_of(sums + c, each)) / n;
            const double variance = static_cast<double>(sum_of(sums + ld + c, each)) / n - shifted * shifted;
            fill(mean + c, each, static_cast<T>(static_cast<double>(shift[c]) + shifted));
            fill(inverse + c, each, static_cast<T>(1.0 / square_root((variance < 0.0 ? 0.0 : variance) + args.eps)));
        });
    }

    /// The same of groups of one channel, several at once. The shift is near the mean: no digits are lost in T.
    void find_statistics_of_channels() const {
        const Vec<T> share(T(1) / static_cast<T>(args.inner)), eps(static_cast<T>(args.eps)), zero(T(0)), one(T(1));
        const T *first = sums, *second = sums + ld, *from = shift;
        T *means = mean, *roots = inverse;
        for_each_vector(channels, [=](int64_t c, int64_t n) __attribute__((always_inline)) {
            const Vec<T> shifted = Vec<T>::load(first + c, n) * share;
            const Vec<T> variance = maximum(Vec<T>::load(second + c, n) * share - shifted * shifted, zero);
            (Vec<T>::load(from + c, n) + shifted).store(means + c, n);
            (one / square_root(variance + eps)).store(roots + c, n);
        });
    }

    void find_scale(const T* weight) const {
        for (int64_t c = 0; c < channels; ++c) scale[c] = weight == nullptr ? inverse[c] : inverse[c] * weight[c];
    }

    void forward(const T* x, const T* weight, const T* offset, T* y) const {
        choose_shift(x);
        add_up<false>(x, nullptr);
        find_statistics();
        find_scale(weight);
        for (int64_t c = 0; c < channels; ++c) bias[c] = offset == nullptr ? T(0) : offset[c];
        spread({mean, scale, bias});
        const T *m = mean, *a = scale, *b = bias;
        write(y, [=, ld = columns, next = ahead](auto vectors, auto streams, int64_t rows, int64_t at, int64_t i,
                                                 int64_t n) __attribute__((always_inline)) {
            normalise_columns<decltype(vectors)::value, decltype(streams)::value>(x + at, y + at, ld, rows, n, m + i,
                                                                                  a + i, b + i, next);
        });
    }

    /// dx; the sample's part of the parameters' gradients is added to `parts` [2, C].
    void backward(const T* x, const T* grad, const T* weight, T* dx, T* parts) const {
        choose_shift(x);
        add_up<true>(x, grad);
        find_statistics();
        find_parts(parts);
        find_scale(weight);
        find_slopes(weight);
        spread({mean, scale, curve, level});
        const T *m = mean, *a = scale, *c = curve, *l = level;
        write(dx, [=, ld = columns, next = ahead](auto vectors, auto streams, int64_t rows, int64_t at, int64_t i,
                                                  int64_t n) __attribute__((always_inline)) {
            gradient_columns<decltype(vectors)::value, decltype(streams)::value>(x + at, grad + at, dx + at, ld, rows,
                                                                                 n, m + i, a + i, c + i, l + i, next);
        });
    }

    /// Adds up g, and g times what is normalised; the sum of g * (x - shift) becomes that of g * (x - mean).
    void find_parts(T* parts) const {
        const T *plain = sums + 2 * ld, *m = mean, *s = shift, *root = inverse;
        T *product = sums + 3 * ld, *bias_part = parts, *weight_part = parts + channels;
        for_each_vector(channels, [=](int64_t c, int64_t n) __attribute__((always_inline)) {
            const Vec<T> g = Vec<T>::load(plain + c, n), away = Vec<T>::load(m + c, n) - Vec<T>::load(s + c, n);
            const Vec<T> moved = Vec<T>::load(product + c, n) - away * g;
            moved.store(product + c, n);
            (Vec<T>::load(bias_part + c, n) + g).store(bias_part + c, n);
            (Vec<T>::load(weight_part + c, n) + moved * Vec<T>::load(root + c, n)).store(weight_part + c, n);
        });
    }

    /// Part of dx from the statistics' dependence on x.
    void find_slopes(const T* weight) const {
        T *plain = sums + 2 * ld, *product = sums + 3 * ld;
        for (int64_t c = 0; weight != nullptr && c < channels; ++c) plain[c] *= weight[c], product[c] *= weight[c];
        const T n = static_cast<T>(each * args.inner);
        if (each == 1) {
            const Vec<T> share(T(1) / n);
            const T *roots = inverse, *first = plain, *second = product;
            T *levels = level, *curves = curve;
            return for_each_vector(channels, [=](int64_t c, int64_t m) __attribute__((always_inline)) {
                const Vec<T> root = Vec<T>::load(roots + c, m), scaled = root * share;
                (scaled * Vec<T>::load(first + c, m)).store(levels + c, m);
                (scaled * root * root * Vec<T>::load(second + c, m)).store(curves + c, m);
            });
        }
        for_each_group([&](int64_t c) {
            const T root = inverse[c];
            fill(level + c, each, root * sum_of(plain + c, each) / n);
            fill(curve + c, each, root * root * root * sum_of(product + c, each) / n);
        });
    }
};

}  // namespace dnnsuite::fused::DNNSUITE_ISA
