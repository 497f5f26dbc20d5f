// SPDX-License-Identifier: MIT
// Depthwise convolution, channels last, sixteen channels at a time. Four neighbours of a line are made together, so
// that a pixel is loaded once for all of them; a line's channels follow each other, as they lie in memory; of the
// filter's rows only those that meet the image are visited, and inside the image nothing is checked. Compiled once per
// instruction set.
#include "fused/cpu/depthwise_kernel.hpp"

#include "fused/cpu/depthwise_narrow.hpp"
#include "fused/cpu/depthwise_pixels.hpp"
#include "fused/cpu/taps.hpp"
#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

/// Sixteen channels of one line of the result, the image they come from, and the lines of it that meet the filter.
template <class T>
struct Line {
    const T *image, *weight, *grad;
    T *y, *sums;  // y: forward; grad and sums: the weight's gradient
    const Tap* rows;
    int64_t row_count;
    int64_t pitch, width, C, lanes, kernel_w;  // of the image: numbers from line to line, pixels
    int64_t margin;                            // pixels of padding before the first
    int64_t first_tap, tap_step, y_step;       // of a row of taps, and of pixels of the result
    Vec<T> start;                              // the bias, or zeros
};

alignas(64) constexpr double kNothing[kLanes] = {};  // a pixel outside the image

/// Pixels `first` to `first` + N of a line of the image, zeros outside. The choice is arithmetic, not a jump: from tile
/// to tile it changes, and a processor that guesses it guesses wrong.
template <int N, bool border, class T>
DNNSUITE_HD void load_pixels(const Line<T>& line, int64_t row, int64_t first, Vec<T> (&v)[N]) {
    const T* const from = line.image + row * line.pitch + first * line.C;
    const auto nothing = reinterpret_cast<uintptr_t>(kNothing);
    DNNSUITE_UNROLL for (int q = 0; q < N; ++q) {
        if (!border) {
            v[q] = Vec<T>::load(from + q * line.C);
        } else {
            const auto inside =
                static_cast<uintptr_t>(static_cast<uint64_t>(first + q) < static_cast<uint64_t>(line.width));
            const auto at = reinterpret_cast<uintptr_t>(from + q * line.C);
            v[q] = Vec<T>::load(reinterpret_cast<const T*>(nothing ^ ((nothing ^ at) & (uintptr_t{0} - inside))));
        }
    }
}

/// P neighbours of the result, K taps wide, S pixels of the image apart: every pixel is loaded once.
/// Rows: how many lines of the image meet the filter, if that is known to the compiler, else 0.
template <int K, int S, int P, bool border, int Rows, class T>
DNNSUITE_HD void tile(const Line<T>& line, int64_t p) {
    Vec<T> sum[P], v[(P - 1) * S + K];
    DNNSUITE_UNROLL for (int i = 0; i < P; ++i) sum[i] = line.start;
    const auto add = [&](int64_t r) __attribute__((always_inline)) {
        const T* weight = line.weight + (line.rows[r].tap * line.kernel_w + line.first_tap) * line.C;
        const int64_t step = line.tap_step * line.C;
        load_pixels<(P - 1) * S + K, border>(line, line.rows[r].from, p * S - line.margin, v);
        DNNSUITE_UNROLL for (int k = 0; k < K; ++k) {
            const Vec<T> w = Vec<T>::load(weight + k * step);
            DNNSUITE_UNROLL for (int i = 0; i < P; ++i) sum[i] = sum[i] + v[i * S + k] * w;
        }
    };
    if constexpr (Rows > 0) {
        DNNSUITE_UNROLL for (int r = 0; r < Rows; ++r) add(r);
    } else {  // as fast as sixteen times, and compiled in half the time
        _Pragma("GCC unroll 4") for (int64_t r = 0; r < line.row_count; ++r) add(r);
    }
    DNNSUITE_UNROLL for (int i = 0; i < P; ++i) sum[i].store(line.y + (p + i) * line.y_step);
}

/// Adds grad * x of P neighbours to one row of taps.
template <int K, int S, int P, bool border, class T>
DNNSUITE_HD void sums_tile(const Line<T>& line, int64_t p, int64_t row, Vec<T> (&sum)[K]) {
    Vec<T> v[(P - 1) * S + K];
    load_pixels<(P - 1) * S + K, border>(line, row, p * S - line.margin, v);
    DNNSUITE_UNROLL for (int i = 0; i < P; ++i) {
        const Vec<T> g = Vec<T>::load(line.grad + (p + i) * line.C);
        DNNSUITE_UNROLL for (int k = 0; k < K; ++k) sum[k] = sum[k] + g * v[i * S + k];
    }
}

template <int N>
struct Number {
    static constexpr int value = N;
};

/// Cuts `count` pixels into fours, then two, then one; body(p, P, at the border?).
template <int K, int S, class T, class Body>
DNNSUITE_HD void for_each_tile(const Line<T>& line, int64_t count, const Body& body) {
    int64_t p = 0;
    const auto outside = [&](int64_t pixels) __attribute__((always_inline)) {
        const int64_t first = p * S - line.margin;
        return first < 0 || first + (pixels - 1) * S + K > line.width;
    };
    for (; p + 4 <= count; p += 4) {
        if (outside(4))
            body(p, Number<4>(), Number<true>());
        else
            body(p, Number<4>(), Number<false>());
    }
    if (p + 2 <= count) {
        body(p, Number<2>(), Number<true>());
        p += 2;
    }
    if (p < count) body(p, Number<1>(), Number<true>());
}

template <int K, int S, int Rows, class T>
__attribute__((noinline)) void tiled_rows(const Line<T>& line, int64_t count) {
    for_each_tile<K, S>(line, count, [&](int64_t p, auto P, auto border) __attribute__((always_inline)) {
        tile<K, S, decltype(P)::value, decltype(border)::value != 0, Rows>(line, p);
    });
}

template <int K, int S, class T>
void tiled_line(const Line<T>& line, int64_t count) {
    if (K == 3 && line.row_count == 3) return tiled_rows<K, S, 3>(line, count);
    if (K == 3 && line.row_count == 2) return tiled_rows<K, S, 2>(line, count);
    tiled_rows<K, S, 0>(line, count);
}

template <int K, int S, class T>
__attribute__((noinline)) void tiled_sums(const Line<T>& line, int64_t count) {
    for (int64_t r = 0; r < line.row_count; ++r) {
        T* const to = line.sums + line.rows[r].tap * K * kLanes;
        const int64_t row = line.rows[r].from;
        Vec<T> sum[K];
        DNNSUITE_UNROLL for (int k = 0; k < K; ++k) sum[k] = Vec<T>::load(to + k * kLanes);
        for_each_tile<K, S>(line, count, [&](int64_t p, auto P, auto border) __attribute__((always_inline)) {
            sums_tile<K, S, decltype(P)::value, decltype(border)::value != 0>(line, p, row, sum);
        });
        DNNSUITE_UNROLL for (int k = 0; k < K; ++k) sum[k].store(to + k * kLanes);
    }
}

/// One pixel by the taps that it has: for filters, strides and channels that have no tiles.
template <class T>
DNNSUITE_HD void pixel(const Line<T>& line, const Taps& columns, int64_t p) {
    Vec<T> sum = line.start;
    const Tap* const column = columns.of(p);
    for (int64_t i = 0; i < line.row_count; ++i) {
        const T* const from = line.image + line.rows[i].from * line.pitch;
        const T* const weight = line.weight + line.rows[i].tap * line.kernel_w * line.C;
        for (int64_t j = 0; j < columns.count[p]; ++j)
            sum = sum + Vec<T>::load(from + column[j].from * line.C, line.lanes) *
                            Vec<T>::load(weight + column[j].tap * line.C, line.lanes);
    }
    sum.store(line.y + p * line.C, line.lanes);
}

template <class T>
DNNSUITE_HD void pixel_sums(const Line<T>& line, const Taps& columns, int64_t p) {
    const Vec<T> g = Vec<T>::load(line.grad + p * line.C, line.lanes);
    const Tap* const column = columns.of(p);
    for (int64_t i = 0; i < line.row_count; ++i) {
        for (int64_t j = 0; j < columns.count[p]; ++j) {
            T* const to = line.sums + (line.rows[i].tap * line.kernel_w + column[j].tap) * kLanes;
            const T* const from = line.image + line.rows[i].from * line.pitch + column[j].from * line.C;
            (Vec<T>::load(to) + g * Vec<T>::load(from, line.lanes)).store(to);
        }
    }
}

/// True if there are tiled kernels. A number of float64 takes four registers with AVX2, and float64 serves checks: there
/// the plain loops do it, which are quicker to compile.
template <class T>
constexpr bool kTiled = !kOldProcessor && (sizeof(T) == 4 || kRegisterBytes == 64);

template <class T>
using LineKernel = void (*)(const Line<T>&, int64_t);

/// pick(kernel, stride), both as constants, for a filter that has tiles; else null.
template <class T, class Pick>
LineKernel<T> tiled(int64_t taps, int64_t stride, const Pick& pick) {
    const auto with = [&](auto kernel) -> LineKernel<T> {
        switch (stride) {
            case 1: return pick(kernel, Number<1>());
            case 2: return pick(kernel, Number<2>());
            case 3: return pick(kernel, Number<3>());
            default: return nullptr;
        }
    };
    switch (taps) {
        case 1: return with(Number<1>());
        case 2: return with(Number<2>());
        case 3: return with(Number<3>());
        case 4: return with(Number<4>());
        case 5: return with(Number<5>());
        case 7: return with(Number<7>());
        default: return nullptr;
    }
}

template <class T>
LineKernel<T> line_kernel(int64_t taps, int64_t stride) {
    if constexpr (kTiled<T>)
        return tiled<T>(taps, stride, [](auto K, auto S) -> LineKernel<T> {
            return tiled_line<decltype(K)::value, decltype(S)::value, T>;
        });
    return nullptr;
}

template <class T>
LineKernel<T> sums_kernel(const Window& w) {
    if constexpr (kTiled<T>)
        if (w.dilation == 1)
            return tiled<T>(w.kernel, w.stride, [](auto K, auto S) -> LineKernel<T> {
                return tiled_sums<decltype(K)::value, decltype(S)::value, T>;
            });
    return nullptr;
}

/// Pixels of a line of the result that meet the same taps: a line kernel's, `first` the first of them.
template <class T>
struct Turn {
    LineKernel<T> kernel;
    int64_t taps, first, count, margin, first_tap, tap_step;
};

/// Turns of a line. Gradients of images under a stride of S meet every S-th tap, from right to left: S turns of pixels,
/// each of a convolution without a stride.
template <class T>
struct Turns {
    Turn<T> turn[3];
    int64_t count = 0, pixels = 1;  // 0: there are no kernels; pixels from one of a turn to the next

    Turns(const Window& w, bool transposed) {
        if (w.dilation != 1 || w.stride > 3) return;
        if (!transposed) {
            turn[0] = {line_kernel<T>(w.kernel, w.stride), w.kernel, 0, w.output, w.padding, 0, 1};
            count = turn[0].kernel != nullptr;
            return;
        }
        pixels = w.stride;
        for (int64_t behind = 0; behind < w.stride; ++behind) {  // the begin of the padding
            const int64_t taps = w.kernel > behind ? (w.kernel - behind - 1) / w.stride + 1 : 0;
            const int64_t out = w.padding > behind ? (w.padding - behind + w.stride - 1) / w.stride : 0;
            const int64_t first = out * w.stride + behind - w.padding;
            const int64_t left = first < w.input ? (w.input - first - 1) / w.stride + 1 : 0;
            const auto kernel = line_kernel<T>(taps > 0 ? taps : 1, 1);
            if (kernel == nullptr) return;
            turn[behind] = {kernel, taps, first, left, taps - 1 - out, behind + w.stride * (taps - 1), -w.stride};
        }
        count = w.stride;
    }
};

/// Numbers from the begin of a line to what is asked for while it is worked on: the first that the next line sees and
/// this one does not, and never too near.
template <class T>
int64_t ahead_of(int64_t lines, int64_t pitch) {
    constexpr int64_t kNear = 8192 / sizeof(T);
    return lines * pitch > kNear ? lines * pitch : kNear;
}

/// Asks for a block's part of what the next line needs. Blocks of channels are read from, pixel by pixel, in steps that
/// a processor does not foresee; asked for at once, memory would be waited for.
template <class T>
void foresee(const T* from, int64_t numbers, int64_t c, int64_t C) {
    constexpr int64_t kCacheLine = 64;
    const auto place = [&](int64_t channel) {
        return numbers * channel / C * static_cast<int64_t>(sizeof(T)) / kCacheLine * kCacheLine;
    };
    const char* const at = reinterpret_cast<const char*>(from);
    const int64_t end = place(c + kLanes < C ? c + kLanes : C);
    for (int64_t i = place(c); i < end; i += kCacheLine) __builtin_prefetch(at + i);
}

/// The lines of a task: forward, or with transposed taps the gradient of the input.
template <class T>
void correlate(const DepthwiseArguments& args, bool transposed, int64_t begin, int64_t end, int64_t* room) {
    if (is_narrow(args)) return Narrow<T>(args, transposed, room).correlate(begin, end);
    if (is_scale(args)) return scale_pixels<T>(args, transposed, begin, end);
    const Window &h = args.height, &w = args.width;
    const Taps lines = taps_of(h, transposed, room), columns = taps_of(w, transposed, room);
    const int64_t C = args.channels, height = transposed ? h.input : h.output, width = transposed ? w.input : w.output;
    const int64_t from_height = transposed ? h.output : h.input;
    const Turns<T> turns(w, transposed);
    Line<T> line{};
    line.C = C, line.kernel_w = w.kernel, line.y_step = turns.pixels * C;
    line.width = transposed ? w.output : w.input, line.pitch = line.width * C;
    const int64_t ahead = ahead_of<T>((h.kernel + 1) / 2, line.pitch);
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        const T* const in =
            transposed ? at<T>(args.grad, task.model * args.grad_stride) : at<T>(args.x, task.model * args.x_stride);
        T* const out = mutable_at<T>(args.y, task.model * args.rows.rows * args.rows.columns);
        const T* const weight = at<T>(args.weight, task.model * args.taps() * C);
        const T* const bias = at<T>(args.bias, task.model * C);
        for (int64_t r = task.first_row; r < task.last_row; ++r) {
            line.rows = lines.of(r % height), line.row_count = lines.count[r % height];
            const T* const image = in + r / height * from_height * line.pitch;
            T* const to = out + r * width * C;
            const T* const next = in + r * from_height / height * line.pitch + ahead;
            for_each_block(C, [&](int64_t c, int64_t lanes) {
                foresee(next, from_height * line.pitch / height, c, C);
                line.image = image + c, line.weight = weight + c, line.lanes = lanes;
                line.start = bias == nullptr ? Vec<T>(T(0)) : Vec<T>::load(bias + c, lanes);
                for (int64_t i = 0; i < turns.count; ++i) {
                    const Turn<T>& turn = turns.turn[i];
                    line.margin = turn.margin, line.first_tap = turn.first_tap, line.tap_step = turn.tap_step;
                    line.y = to + turn.first * C + c;
                    line.row_count = turn.taps > 0 ? lines.count[r % height] : 0;
                    turn.kernel(line, turn.count);
                }
                if (turns.count > 0) return;
                line.y = to + c;
                for (int64_t p = 0; p < width; ++p) pixel(line, columns, p);
            });
        }
    }
}

template <class T>
void weight_sums(const DepthwiseArguments& args, int64_t begin, int64_t end, int64_t* room) {
    if (is_narrow(args)) return Narrow<T>(args, false, room).weight_sums(begin, end);
    if (is_scale(args)) return scale_sums<T>(args, begin, end);
    const Window &h = args.height, &w = args.width;
    const Taps lines = taps_of(h, false, room), columns = taps_of(w, false, room);
    const int64_t C = args.channels, taps = args.taps();
    const LineKernel<T> kernel = sums_kernel<T>(w);
    Line<T> line{};
    line.C = C, line.kernel_w = w.kernel, line.width = w.input, line.pitch = w.input * C, line.margin = w.padding;
    const int64_t ahead = ahead_of<T>((h.kernel + 1) / 2, line.pitch);
    T* const sums = reinterpret_cast<T*>(room);  // of every block: [taps + 1, 16]
    const int64_t block = (taps + 1) * kLanes;
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        const T* const x = at<T>(args.x, task.model * args.x_stride);
        const T* const grad = at<T>(args.grad, task.model * args.grad_stride);
        fill(sums, padded(C) / kLanes * block, T(0));
        for (int64_t r = task.first_row; r < task.last_row; ++r) {
            line.rows = lines.of(r % h.output), line.row_count = lines.count[r % h.output];
            line.sums = sums;
            const T* const next = x + r * h.input / h.output * line.pitch + ahead;
            const T* const next_grad = grad + r * w.output * C + ahead_of<T>(1, w.output * C);
            for_each_block(C, [&](int64_t c, int64_t lanes) {
                foresee(next, h.input * line.pitch / h.output, c, C);
                foresee(next_grad, w.output * C, c, C);
                line.image = x + r / h.output * h.input * line.pitch + c, line.lanes = lanes;
                line.grad = grad + r * w.output * C + c;
                Vec<T> total = Vec<T>::load(line.sums + taps * kLanes);
                for (int64_t p = 0; p < w.output; ++p) total = total + Vec<T>::load(line.grad + p * C, lanes);
                total.store(line.sums + taps * kLanes);
                if (kernel != nullptr && lanes == kLanes)
                    kernel(line, w.output);
                else
                    for (int64_t p = 0; p < w.output; ++p) pixel_sums(line, columns, p);
                line.sums += block;
            });
        }
        T* const to = mutable_at<T>(args.sums, t * (taps + 1) * C);
        const T* from = sums;
        for_each_block(C, [&](int64_t c, int64_t lanes) {
            for (int64_t k = 0; k <= taps; ++k, from += kLanes) Vec<T>::load(from).store(to + k * C + c, lanes);
        });
    }
}

}  // namespace

void depthwise_forward(const DepthwiseArguments& args, int64_t begin, int64_t end, void* scratch) {
    auto* const room = static_cast<int64_t*>(scratch);
    args.dtype == DType::kFloat64 ? correlate<double>(args, false, begin, end, room)
                                  : correlate<float>(args, false, begin, end, room);
}

void depthwise_backward_input(const DepthwiseArguments& args, int64_t begin, int64_t end, void* scratch) {
    auto* const room = static_cast<int64_t*>(scratch);
    args.dtype == DType::kFloat64 ? correlate<double>(args, true, begin, end, room)
                                  : correlate<float>(args, true, begin, end, room);
}

void depthwise_backward_weight(const DepthwiseArguments& args, int64_t begin, int64_t end, void* scratch) {
    auto* const room = static_cast<int64_t*>(scratch);
    args.dtype == DType::kFloat64 ? weight_sums<double>(args, begin, end, room)
                                  : weight_sums<float>(args, begin, end, room);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
