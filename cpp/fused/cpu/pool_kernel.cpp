// SPDX-License-Identifier: MIT
// Pooling, channels last, sixteen channels at a time. Every pixel of the result is gathered: also a gradient, from the
// windows that its pixel is in, in the order of the windows, as torch adds them. Compiled once per instruction set.
#include "fused/cpu/pool_kernel.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "fused/cpu/pool_scatter.hpp"
#include "fused/cpu/taps.hpp"
#include "fused/cpu/tasks.hpp"
#include "fused/math/pool.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

/// The numbers that one pixel of the result comes from, evenly spaced, and their taps.
struct Span {
    int64_t rows, columns;
    int64_t first, row_step, column_step;  // of a channel: in numbers
    int64_t tap, row_tap, column_tap;
};

/// One pixel of the result and the pixels that it comes from.
template <class T>
struct Pixel {
    const T* from;                            // the image that is read
    const uint8_t* from_taps;                 // backward: of each window the tap with the largest
    T* to;                                    // the pixel
    uint8_t* to_taps;                         // forward
    const Tap *rows, *columns;                // what meets the image
    const int64_t *row_sizes, *column_sizes;  // of each window; for means
    int64_t row_count, column_count;
    int64_t pitch, channels, kernel_w;
    bool relu;     // max forward
    bool sized;    // means forward: each window has its own divisor
    bool streams;  // gradients: past the caches
    T divisor;     // means: of this window or of all, or 0: backward, each window its own
    T share;       // gradients of means: 1 / divisor

    DNNSUITE_HD Span span() const {
        Span s{row_count, column_count, 0, 0, 0, 0, 0, 0};
        if (row_count == 0 || column_count == 0) return s;
        s.first = rows[0].from * pitch + columns[0].from * channels;
        s.tap = rows[0].tap * kernel_w + columns[0].tap;
        if (row_count > 1) {
            s.row_step = (rows[1].from - rows[0].from) * pitch;
            s.row_tap = (rows[1].tap - rows[0].tap) * kernel_w;
        }
        if (column_count > 1) {
            s.column_step = (columns[1].from - columns[0].from) * channels;
            s.column_tap = columns[1].tap - columns[0].tap;
        }
        return s;
    }
};

template <class T>
using Places = Vec<typename SignedOf<sizeof(T)>::type>;

/// As many bytes as a register has lanes.
template <int Lanes>
struct Bytes {
    typedef uint8_t Part __attribute__((vector_size(Lanes)));
};

/// Widens bytes, as many as a register has lanes. GCC 12 would take them one by one.
template <class Register>
DNNSUITE_HD void widen(const uint8_t* from, Register& to) {
    typename Bytes<sizeof(Register) / sizeof(Register{}[0])>::Part part;
    __builtin_memcpy(&part, from, sizeof(part));
    to = __builtin_convertvector(part, Register);
}
#if defined(__AVX512F__)
DNNSUITE_HD void widen(const uint8_t* from, Vec<int32_t>::Register& to) {
    to = (Vec<int32_t>::Register)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
DNNSUITE_HD void widen(const uint8_t* from, Vec<int64_t>::Register& to) {
    to = (Vec<int64_t>::Register)_mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
#elif defined(__AVX2__)
DNNSUITE_HD void widen(const uint8_t* from, Vec<int32_t>::Register& to) {
    to = (Vec<int32_t>::Register)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
#elif defined(__aarch64__)
DNNSUITE_HD void widen(const uint8_t* from, Vec<int32_t>::Register& to) {
    uint32_t four;
    __builtin_memcpy(&four, from, sizeof(four));
    const uint16x8_t wider = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
    to = (Vec<int32_t>::Register)vmovl_u16(vget_low_u16(wider));
}
#endif

template <class T>
DNNSUITE_HD Places<T> load_places(const uint8_t* from, int64_t count) {
    constexpr int kParts = Vec<T>::kParts;
    Places<T> v;
    if (count < kLanes) {
        uint8_t lanes[kLanes] = {};
        for (int64_t i = 0; i < count; ++i) lanes[i] = from[i];
        DNNSUITE_EACH widen(lanes + i * Vec<T>::kPerRegister, v.part[i]);
        return v;
    }
    DNNSUITE_EACH widen(from + i * Vec<T>::kPerRegister, v.part[i]);
    return v;
}

template <class T>
DNNSUITE_HD void store_places(const Places<T>& v, uint8_t* to, int64_t count) {
    constexpr int kParts = Vec<T>::kParts;
    uint8_t lanes[kLanes];
    uint8_t* const whole = count < kLanes ? lanes : to;
    DNNSUITE_EACH {
        const auto part = __builtin_convertvector(v.part[i], typename Bytes<Vec<T>::kPerRegister>::Part);
        __builtin_memcpy(whole + i * Vec<T>::kPerRegister, &part, sizeof(part));
    }
    for (int64_t i = 0; i < count && whole != to; ++i) to[i] = lanes[i];
}

/// Lanes in which `value` is the larger or a NaN, as masks for numbers and for places.
template <class T>
struct Replaced {
    typename Vec<T>::Mask numbers;
    typename Places<T>::Mask places;
};

template <class T>
DNNSUITE_HD Replaced<T> replaced(const Vec<T>& value, const Vec<T>& best) {
    constexpr int kParts = Vec<T>::kParts;
    Replaced<T> r;
    DNNSUITE_EACH r.places.part[i] = r.numbers.part[i] =
        (value.part[i] > best.part[i]) | (value.part[i] != value.part[i]);
    return r;
}

template <class T>
DNNSUITE_HD typename Vec<T>::Mask equal(const Places<T>& a, const Places<T>& b) {
    constexpr int kParts = Vec<T>::kParts;
    typename Vec<T>::Mask mask;
    DNNSUITE_EACH mask.part[i] = a.part[i] == b.part[i];
    return mask;
}

/// The largest of a window and its tap. R, C: its rows and columns if they are known to the compiler, else 0.
template <class T>
struct Largest {
    template <int R, int C>
    static DNNSUITE_HD void take(const Pixel<T>& p, const Span& s, int64_t c, int64_t n) {
        const auto place = [](int64_t tap) __attribute__((always_inline)) {
            return Places<T>(static_cast<typename SignedOf<sizeof(T)>::type>(tap));
        };
        const T* const from = p.from + s.first + c;
        const bool any = R > 0 || s.rows * s.columns > 0;
        Vec<T> best = any ? Vec<T>::load(from, n) : Vec<T>(-static_cast<T>(INFINITY));
        Places<T> where = place(any ? s.tap : kNoTap);
        upwards<R>(s.rows, [&](int64_t i) __attribute__((always_inline)) {
            upwards<C>(s.columns, [&](int64_t j) __attribute__((always_inline)) {
                const Vec<T> value = Vec<T>::load(from + i * s.row_step + j * s.column_step, n);
                const Replaced<T> mask = replaced(value, best);
                best = select(mask.numbers, value, best);
                where = select(mask.places, place(s.tap + i * s.row_tap + j * s.column_tap), where);
            });
        });
        if (p.relu) {  // what is not above zero is zero, and has no gradient; a NaN stays
            const Vec<T> zero(T(0));
            const Replaced<T> mask = replaced(best, zero);
            best = select(mask.numbers, best, zero);
            where = select(mask.places, where, place(kNoTap));
        }
        best.store(p.to + c, n);
        store_places<T>(where, p.to_taps + c, n);
    }
};

/// Writes a gradient of a pixel; of one window past the caches if it is to.
template <int R, int C, class T>
DNNSUITE_HD void put(const Pixel<T>& p, const Vec<T>& v, int64_t c, int64_t n) {
    if (R == 1 && C == 1 && p.streams)
        v.stream(p.to + c);
    else
        v.store(p.to + c, n);
}

/// The gradients of the windows whose largest this pixel is.
template <class T>
struct LargestGradient {
    template <int R, int C>
    static DNNSUITE_HD void take(const Pixel<T>& p, const Span& s, int64_t c, int64_t n) {
        const Vec<T> zero(T(0));
        Vec<T> sum = zero;
        downwards<R>(s.rows, [&](int64_t i) __attribute__((always_inline)) {
            downwards<C>(s.columns, [&](int64_t j) __attribute__((always_inline)) {
                const int64_t at = s.first + i * s.row_step + j * s.column_step + c;
                const int64_t tap = s.tap + i * s.row_tap + j * s.column_tap;
                const Places<T> mine(static_cast<typename SignedOf<sizeof(T)>::type>(tap));
                const Vec<T> grad =
                    select(equal<T>(load_places<T>(p.from_taps + at, n), mine), Vec<T>::load(p.from + at, n), zero);
                sum = R == 1 && C == 1 ? grad : sum + grad;
            });
        });
        put<R, C>(p, sum, c, n);
    }
};

template <class T>
struct Mean {
    template <int R, int C>
    static DNNSUITE_HD void take(const Pixel<T>& p, const Span& s, int64_t c, int64_t n) {
        Vec<T> sum(T(0));
        upwards<R>(s.rows, [&](int64_t i) __attribute__((always_inline)) {
            upwards<C>(s.columns, [&](int64_t j) __attribute__((always_inline)) {
                sum = sum + Vec<T>::load(p.from + s.first + i * s.row_step + j * s.column_step + c, n);
            });
        });
        (sum / Vec<T>(p.divisor)).store(p.to + c, n);
    }
};

template <class T>
struct MeanGradient {
    template <int R, int C>
    static DNNSUITE_HD void take(const Pixel<T>& p, const Span& s, int64_t c, int64_t n) {
        Vec<T> sum(T(0));
        downwards<R>(s.rows, [&](int64_t i) __attribute__((always_inline)) {
            downwards<C>(s.columns, [&](int64_t j) __attribute__((always_inline)) {
                const Vec<T> share(p.divisor != T(0) ? p.share : share_of(p, i, j));
                sum = sum + Vec<T>::load(p.from + s.first + i * s.row_step + j * s.column_step + c, n) * share;
            });
        });
        put<R, C>(p, sum, c, n);
    }
    static DNNSUITE_HD T share_of(const Pixel<T>& p, int64_t i, int64_t j) {
        return T(1) / static_cast<T>(p.row_sizes[p.rows[i].from] * p.column_sizes[p.columns[j].from]);
    }
};

/// All channels of a pixel. `wide`: sixteen may be read and written where there are fewer; the next pixels come later.
template <class Work, int R, int C, class T>
DNNSUITE_HD void channels_of(const Pixel<T>& p, bool wide) {
    const Span s = p.span();
    if (p.channels < kLanes) return Work::template take<R, C>(p, s, 0, wide ? kLanes : p.channels);
    for_each_block(p.channels,
                   [&](int64_t c, int64_t n) __attribute__((always_inline)) { Work::template take<R, C>(p, s, c, n); });
}

/// A line of the result, of windows of R rows. `p`: its first pixel, a copy of the line's own, which no store can change.
template <class Work, int R, class T>
__attribute__((noinline)) void line(Pixel<T> p, const Taps& columns, int64_t width, bool wide) {
    const T row_size = p.divisor;  // forward without a divisor of all windows
    const Taps taps = columns;
    for (int64_t x = 0; x < width; ++x, p.to += p.channels) {
        p.columns = taps.of(x), p.column_count = taps.count[x];
        if (p.sized) p.divisor = row_size * static_cast<T>(p.column_sizes[x]);
        if (R > 0 && p.column_count == 1)
            channels_of<Work, R, R == 0 ? 0 : 1>(p, wide);
        else if (R > 0 && p.column_count == 2)
            channels_of<Work, R, R == 0 ? 0 : 2>(p, wide);
        else if (R > 0 && p.column_count == 3)
            channels_of<Work, R, R == 0 ? 0 : 3>(p, wide);
        else
            channels_of<Work, 0, 0>(p, wide);
        if (p.to_taps != nullptr) p.to_taps += p.channels;
    }
}

/// A line of means of windows of any size: the sums of their rows first, of a whole line of the image at once, which a
/// few channels fill as well as many; then of their columns. `sums` has a line of the image, and a vector more.
template <class T>
__attribute__((noinline)) void line_of_means(const Pixel<T>& p, const Taps& columns, int64_t width, bool wide,
                                             T* sums) {
    const int64_t C = p.channels, rows = p.row_count;
    for_each_vector(p.pitch, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        Vec<T> sum(T(0));
        for (int64_t r = 0; r < rows; ++r) sum = sum + Vec<T>::load(p.from + p.rows[r].from * p.pitch + i, n);
        sum.store(sums + i, n);
    });
    T* to = p.to;
    for (int64_t x = 0; x < width; ++x, to += C) {
        const int64_t count = columns.count[x];
        const T* first = count > 0 ? sums + columns.of(x)->from * C : sums;
        const Vec<T> divisor(p.sized ? p.divisor * static_cast<T>(p.column_sizes[x]) : p.divisor);
        const auto take = [&](int64_t c, int64_t n) __attribute__((always_inline)) {
            Vec<T> sum(T(0));
            for (int64_t j = 0; j < count; ++j) sum = sum + Vec<T>::load(first + j * C + c);
            (sum / divisor).store(to + c, n);
        };
        if (C < kLanes)
            take(0, wide ? kLanes : C);
        else
            for_each_block(C, take);
    }
}

const int64_t* sizes_of(const Window& w, bool count_padding, int64_t*& room) {
    int64_t* const sizes = room;
    room += w.output;
    for (int64_t o = 0; o < w.output; ++o)
        sizes[o] = counted_pixels(o, w.input, w.kernel, w.stride, w.padding, count_padding);
    return sizes;
}

/// True if a line of the image lies in one row of windows, the same as the line before.
bool same_window(const Taps& lines, int64_t row) {
    return lines.count[row] == 1 && lines.count[row - 1] == 1 && lines.of(row)->from == lines.of(row - 1)->from;
}

/// The lines of some tasks. `backward`: of the image, from its windows.
template <class Work, class T>
void pool(const PoolArguments& args, bool backward, bool streams, int64_t begin, int64_t end, void* scratch) {
    auto* room = static_cast<int64_t*>(scratch);
    const Window &h = args.height, &w = args.width;
    const Taps lines = taps_of(h, backward, room), columns = taps_of(w, backward, room);
    const int64_t height = backward ? h.input : h.output, width = backward ? w.input : w.output;
    const int64_t from_height = backward ? h.output : h.input, from_width = backward ? w.output : w.input;
    const int64_t C = args.channels, model = args.rows.rows * width * C;
    Pixel<T> p{};
    p.channels = C, p.pitch = from_width * C, p.kernel_w = w.kernel, p.relu = args.relu;
    p.row_sizes = sizes_of(h, args.count_padding, room);
    p.column_sizes = sizes_of(w, args.count_padding, room);
    p.sized = !backward && args.divisor == 0;
    // Where windows overlap most pixels are in several, and not written so: a mixture of both takes longer than either.
    const bool apart = h.kernel <= h.stride && w.kernel <= w.stride;
    p.streams = streams && apart && C % kLanes == 0 && reinterpret_cast<uintptr_t>(args.to) % 64 == 0;
    const bool repeats = std::is_same_v<Work, MeanGradient<T>> && !p.streams;
    const bool few = *std::max_element(columns.count, columns.count + width) <= 3;
    const int64_t from_image = from_height * p.pitch, images = args.rows.rows / height;
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        for (int64_t r = task.first_row; r < task.last_row; ++r) {
            const int64_t row = r % height, image = task.model * images + r / height;
            p.from = at<T>(args.from, image * from_image);
            p.from_taps = at<uint8_t>(args.taps, image * from_image);
            p.to = mutable_at<T>(args.to, task.model * model + r * width * C);
            p.to_taps = mutable_at<uint8_t>(args.to_taps, task.model * model + r * width * C);
            p.rows = lines.of(row), p.row_count = lines.count[row];
            p.divisor = static_cast<T>(p.sized ? p.row_sizes[row] : args.divisor);
            p.share = T(1) / p.divisor;
            // Behind the line there is more of the task to be written, behind the image another to be read.
            const bool wide = (task.last_row - r - 1) * width * C >= kLanes &&
                              (args.rows.models * images - image - 1) * from_image >= kLanes;
            if (repeats && r > task.first_row && row > 0 && same_window(lines, row)) {
                std::memcpy(p.to, p.to - width * C, static_cast<size_t>(width * C) * sizeof(T));
                continue;
            }
            if (few && p.row_count == 1)
                line<Work, 1>(p, columns, width, wide);
            else if (few && p.row_count == 2)
                line<Work, 2>(p, columns, width, wide);
            else if (sizeof(T) == 4 && few && p.row_count == 3)
                line<Work, sizeof(T) == 4 ? 3 : 0>(p, columns, width, wide);
            else if constexpr (std::is_same_v<Work, Mean<T>>)
                line_of_means(p, columns, width, wide, reinterpret_cast<T*>(room));
            else
                line<Work, 0>(p, columns, width, wide);
        }
    }
    if (p.streams) finish_streams();
}

}  // namespace

void max_pool(const PoolArguments& args, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64) return pool<Largest<double>, double>(args, false, false, begin, end, scratch);
    pool<Largest<float>, float>(args, false, false, begin, end, scratch);
}

void avg_pool(const PoolArguments& args, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64) return pool<Mean<double>, double>(args, false, false, begin, end, scratch);
    pool<Mean<float>, float>(args, false, false, begin, end, scratch);
}

void max_pool_backward(const PoolArguments& args, bool streams, int64_t begin, int64_t end, void* scratch) {
    const WholeImages images(args, begin, end);
    const bool scatters = args.channels < kFewChannels && images.first < images.last,
               wide = args.dtype == DType::kFloat64;
    if (scatters && wide) return scatter_images<double>(args, images.first, images.last);
    if (scatters) return scatter_images<float>(args, images.first, images.last);
    if (wide) return pool<LargestGradient<double>, double>(args, true, streams, begin, end, scratch);
    pool<LargestGradient<float>, float>(args, true, streams, begin, end, scratch);
}

void avg_pool_backward(const PoolArguments& args, bool streams, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64)
        return pool<MeanGradient<double>, double>(args, true, streams, begin, end, scratch);
    pool<MeanGradient<float>, float>(args, true, streams, begin, end, scratch);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
