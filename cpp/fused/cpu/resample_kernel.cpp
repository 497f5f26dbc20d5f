// SPDX-License-Identifier: MIT
// Resampled images, channels last: of each row of the result first the rows of x that it is made of are added up, whole
// lines at a time, then the columns, pixel by pixel. Compiled once per instruction set.
#include "fused/cpu/resample_kernel.hpp"

#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

/// What one pixel, or row, is made of.
struct Taps {
    const int64_t* sources;
    int64_t count;
};

DNNSUITE_HD Taps taps_at(const TapsView& view, int64_t i) {
    return {view.sources + view.starts[i], view.starts[i + 1] - view.starts[i]};
}

constexpr int64_t kAhead = 256;  // numbers: the hardware starts anew with each row and each page

/// Fetches the line that is `ahead` numbers behind x, to be written.
template <class T>
DNNSUITE_HD void fetch_to_write(const T* x, int64_t ahead) {
    const auto place = reinterpret_cast<intptr_t>(x) + ahead * static_cast<int64_t>(sizeof(T));
    __builtin_prefetch(reinterpret_cast<const char*>(place), 1, 3);
}

/// Writes to memory, past the caches if `Streams`.
template <bool Streams, class T>
DNNSUITE_HD void put(const Vec<T>& v, T* to, int64_t count) {
    if constexpr (Streams)
        v.stream(to);
    else
        v.store(to, count);
}

/// The weighted sum of `Count` runs of `length` numbers that begin at multiples of `pitch`; 0: of as many as there are.
template <int Count, bool Streams, class T>
DNNSUITE_HD void add_runs(const T* from, int64_t pitch, const Taps& taps, const T* weights, int64_t length, T* to) {
    constexpr int kKnown = Count == 0 ? 1 : Count;
    const T* runs[kKnown];
    Vec<T> factors[kKnown];
    _Pragma("GCC unroll 4") for (int k = 0; k < kKnown; ++k) {
        runs[k] = from + taps.sources[k] * pitch;
        factors[k] = Vec<T>(weights[k]);
    }
    for_each_vector(length, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        _Pragma("GCC unroll 4") for (int k = 0; k < kKnown; ++k) fetch(runs[k] + i, kAhead);
        if (!Streams) fetch_to_write(to + i, kAhead);
        Vec<T> sum = factors[0] * Vec<T>::load(runs[0] + i, n);
        _Pragma("GCC unroll 4") for (int k = 1; k < kKnown; ++k) sum = sum + factors[k] * Vec<T>::load(runs[k] + i, n);
        for (int64_t k = 1; Count == 0 && k < taps.count; ++k)
            sum = sum + Vec<T>(weights[k]) * Vec<T>::load(from + taps.sources[k] * pitch + i, n);
        put<Streams>(sum, to + i, n);
    });
}

/// The same of any number.
template <bool Streams, class T>
DNNSUITE_HD void add_up(const T* from, int64_t pitch, const Taps& taps, const T* weights, int64_t length, T* to) {
    switch (taps.count) {
        case 0: return fill(to, length, T(0));
        case 1: return add_runs<1, Streams>(from, pitch, taps, weights, length, to);
        case 2: return add_runs<2, Streams>(from, pitch, taps, weights, length, to);
        case 3: return add_runs<3, Streams>(from, pitch, taps, weights, length, to);
        case 4: return add_runs<4, Streams>(from, pitch, taps, weights, length, to);
        default: return add_runs<0, Streams>(from, pitch, taps, weights, length, to);
    }
}

/// True if row i is made of the same as the one before it.
DNNSUITE_HD bool is_repeated(const TapsView& rows, int64_t i) {
    const Taps now = taps_at(rows, i), before = taps_at(rows, i - 1);
    const double *const weights = rows.weights + rows.starts[i], *const others = rows.weights + rows.starts[i - 1];
    bool alike = now.count == before.count;
    for (int64_t k = 0; alike && k < now.count; ++k)
        alike = now.sources[k] == before.sources[k] && weights[k] == others[k];
    return alike;
}

template <class T>
DNNSUITE_HD T* copy_weights(const TapsView& view, T* to) {
    const int64_t count = view.starts[view.outputs];
    for (int64_t k = 0; k < count; ++k) to[k] = static_cast<T>(view.weights[k]);
    return to + padded(count);
}

template <bool Streams, class T>
void resample_rows(const ResampleArguments& args, int64_t begin, int64_t end, void* scratch) {
    const int64_t C = args.channels, pitch = args.width * C;
    const TapsView &rows = args.rows, &columns = args.columns;
    const int64_t height = rows.outputs, width = columns.outputs;
    T *const row_weights = static_cast<T*>(scratch), *const weights = copy_weights(rows, row_weights);
    T* const line = copy_weights(columns, weights);
    const bool same = width == args.width && columns.runs[0] == width && columns.sources[0] == 0;
    for (int64_t task = begin; task < end; ++task) {
        const int64_t row = task % height, first = rows.starts[row];
        T* const to = mutable_at<T>(args.to, task * width * C);
        if (!Streams && task > begin && row > 0 && is_repeated(rows, row)) {
            copy_run(to - width * C, to, width * C);
            continue;
        }
        const T* const image = at<T>(args.from, task / height * args.height * pitch);
        const Taps taps = taps_at(rows, row);
        if (same) {
            add_up<Streams>(image, pitch, taps, row_weights + first, pitch, to);
            continue;
        }
        const bool plain = taps.count == 1 && row_weights[first] == T(1);
        const T* const from = plain ? image + taps.sources[0] * pitch : line;
        if (!plain) add_up<false>(image, pitch, taps, row_weights + first, pitch, line);
        for (int64_t column = 0; column < width; column += columns.runs[column])
            add_up<Streams>(from, C, taps_at(columns, column), weights + columns.starts[column],
                            columns.runs[column] * C, to + column * C);
    }
    if (Streams) finish_streams();
}

template <class T>
void resample_images(const ResampleArguments& args, int64_t begin, int64_t end, void* scratch) {
    const bool whole = args.channels % kLanes == 0 && reinterpret_cast<uintptr_t>(args.to) % 64 == 0;
    if (args.streams && whole) return resample_rows<true, T>(args, begin, end, scratch);
    resample_rows<false, T>(args, begin, end, scratch);
}

}  // namespace

void resample(const ResampleArguments& args, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64) return resample_images<double>(args, begin, end, scratch);
    resample_images<float>(args, begin, end, scratch);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
