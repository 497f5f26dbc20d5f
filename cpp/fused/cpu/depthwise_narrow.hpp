// SPDX-License-Identifier: MIT
// Depthwise convolution of images whose channels do not fill a vector: a vector is some neighbours of a line, all their
// channels. Lines are laid out with zeros at their ends and, for a stride, with the pixels in turns, so that under
// every tap neighbours of the result see neighbours.
#pragma once

#include "fused/cpu/depthwise_kernel.hpp"
#include "fused/cpu/taps.hpp"
#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Lines of an image, laid out when they are first asked for; those under one line of the result are kept.
template <class T>
class LaidLines {
  public:
    /// Pixel p of a line goes to turn (p + before) % turns, place (p + before) / turns.
    LaidLines(int64_t lines, int64_t width, int64_t channels, int64_t before, int64_t turns, int64_t places, T*& room)
        : lines_(lines), width_(width), C_(channels), before_(before), turns_(turns), places_(places), lines_of_(room) {
        numbers_ = laid_numbers(places, turns, channels);
        room += lines * numbers_;
        held_ = reinterpret_cast<int64_t*>(room);
        room += lines * static_cast<int64_t>(sizeof(int64_t) / sizeof(T));
        fill(lines_of_, lines * numbers_, T(0));
        fill(held_, lines, int64_t{-1});
    }

    void forget() { fill(held_, lines_, int64_t{-1}); }

    const T* line(const T* image, int64_t line) {
        const int64_t slot = line % lines_;
        T* const to = lines_of_ + slot * numbers_;
        if (held_[slot] == line) return to;
        held_[slot] = line;
        const T* const from = image + line * width_ * C_;
        for (int64_t turn = 0; turn < turns_; ++turn) {
            int64_t place = before_ / turns_ + (before_ % turns_ > turn);
            const int64_t first = place * turns_ + turn - before_, room = places_ - place;
            const int64_t left = first < width_ ? (width_ - first - 1) / turns_ + 1 : 0;
            if (room > 0) lay(from + first * C_, to + (turn * places_ + place) * C_, left < room ? left : room);
        }
        return to;
    }

    /// Where the pixel at `offset` from the first place of turn 0 lies in a line.
    int64_t at(int64_t offset) const { return (offset % turns_ * places_ + offset / turns_) * C_; }

  private:
    void lay(const T* from, T* to, int64_t pixels) const {
        if (turns_ == 1) return copy_run(from, to, pixels * C_);
        if (C_ == 1) {
            for (int64_t i = 0; i < pixels; ++i) to[i] = from[i * turns_];
            return;
        }
        for (int64_t i = 0; i < pixels; ++i)
            for (int64_t c = 0; c < C_; ++c) to[i * C_ + c] = from[i * turns_ * C_ + c];
    }

    int64_t lines_, width_, C_, before_, turns_, places_, numbers_;
    T* lines_of_;
    int64_t* held_;
};

/// A tap of the filter that a line of the result meets: where its first number lies, and the weights of a vector.
template <class T>
struct LaidTap {
    const T *from, *weight;
};

template <int Vectors, class T>
DNNSUITE_HD void laid_tile(const LaidTap<T>* taps, int64_t count, int64_t at, int64_t step, Vec<T> start, T* to,
                           int64_t last) {
    Vec<T> sum[Vectors];
    DNNSUITE_UNROLL for (int v = 0; v < Vectors; ++v) sum[v] = start;
    for (int64_t k = 0; k < count; ++k) {
        const Vec<T> weight = Vec<T>::load(taps[k].weight);
        const T* const from = taps[k].from + at;
        DNNSUITE_UNROLL for (int v = 0; v < Vectors; ++v) sum[v] = sum[v] + weight * Vec<T>::load(from + v * step);
    }
    DNNSUITE_UNROLL for (int v = 0; v < Vectors; ++v) sum[v].store(to + v * step, v < Vectors - 1 ? step : last);
}

/// to[i] = start + the sum of the taps, `step` numbers at a time: whole pixels.
template <class T>
__attribute__((noinline)) void laid_line(const LaidTap<T>* taps, int64_t count, int64_t numbers, int64_t step,
                                         Vec<T> start, T* to) {
    int64_t i = 0;
    for (; i + 4 * step <= numbers; i += 4 * step) laid_tile<4>(taps, count, i, step, start, to + i, step);
    const int64_t left = numbers - i, vectors = (left + step - 1) / step, last = left - (vectors - 1) * step;
    if (vectors == 4) return laid_tile<4>(taps, count, i, step, start, to + i, last);
    if (vectors == 3) return laid_tile<3>(taps, count, i, step, start, to + i, last);
    if (vectors == 2) return laid_tile<2>(taps, count, i, step, start, to + i, last);
    if (vectors == 1) return laid_tile<1>(taps, count, i, step, start, to + i, last);
}

/// Adds grad * x to the sums of `Taps` taps, lane by lane.
template <int Taps, class T>
__attribute__((noinline)) void laid_sums(const LaidTap<T>* taps, const T* grad, int64_t numbers, int64_t step,
                                         T* const* sums) {
    Vec<T> sum[Taps];
    DNNSUITE_UNROLL for (int k = 0; k < Taps; ++k) sum[k] = Vec<T>::load(sums[k]);
    for (int64_t i = 0; i < numbers; i += step) {
        const int64_t n = numbers - i < step ? numbers - i : step;
        const Vec<T> g = Vec<T>::load(grad + i, n);
        DNNSUITE_UNROLL for (int k = 0; k < Taps; ++k) sum[k] = sum[k] + g * Vec<T>::load(taps[k].from + i, n);
    }
    DNNSUITE_UNROLL for (int k = 0; k < Taps; ++k) sum[k].store(sums[k]);
}

/// The lines of some tasks of a narrow depthwise convolution.
template <class T>
class Narrow {
  public:
    Narrow(const DepthwiseArguments& args, bool transposed, int64_t* room)
        : args_(args), transposed_(transposed), C_(args.channels), step_(kLanes / C_ * C_),
          heights_(taps_of(args.height, transposed, room)), numbers_(reinterpret_cast<T*>(room)),
          lines_(laid(args, transposed, numbers_)) {
        weights_ = numbers_;
        spread_ = weights_ + (args.taps() + 1) * kLanes;
        taps_ = reinterpret_cast<LaidTap<T>*>(spread_ + padded(args.width.input * C_ + kLanes));
        sums_ = reinterpret_cast<T**>(taps_ + args.taps());
        offsets_ = reinterpret_cast<int64_t*>(sums_ + args.taps());
        set_offsets();
    }

    /// Forward; transposed: the gradient of the images.
    void correlate(int64_t begin, int64_t end) {
        const Window &h = args_.height, &w = args_.width;
        const int64_t height = transposed_ ? h.input : h.output, from_height = transposed_ ? h.output : h.input;
        const int64_t width = transposed_ ? w.input : w.output;
        for (int64_t t = begin; t < end; ++t) {
            const Task task = task_at(args_.rows, t);
            const T* const in = transposed_ ? at<T>(args_.grad, task.model * args_.grad_stride)
                                            : at<T>(args_.x, task.model * args_.x_stride);
            T* const out = mutable_at<T>(args_.y, task.model * args_.rows.rows * args_.rows.columns);
            spread_weights(at<T>(args_.weight, task.model * args_.taps() * C_), at<T>(args_.bias, task.model * C_));
            lines_.forget();
            for (int64_t r = task.first_row; r < task.last_row; ++r)
                line(in, r / height * from_height, r % height, out + r * width * C_);
        }
    }

    void weight_sums(int64_t begin, int64_t end) {
        const Window &h = args_.height, &w = args_.width;
        const int64_t taps = args_.taps(), numbers = w.output * C_;
        for (int64_t t = begin; t < end; ++t) {
            const Task task = task_at(args_.rows, t);
            const T* const x = at<T>(args_.x, task.model * args_.x_stride);
            const T* const grad = at<T>(args_.grad, task.model * args_.grad_stride);
            fill(weights_, (taps + 1) * kLanes, T(0));
            lines_.forget();
            for (int64_t r = task.first_row; r < task.last_row; ++r) {
                const int64_t count = gather(x, r / h.output * h.input, r % h.output, 0);
                add(grad + r * numbers, numbers, count);
            }
            T* const to = mutable_at<T>(args_.sums, t * (taps + 1) * C_);
            fill(to, (taps + 1) * C_, T(0));
            for (int64_t k = 0; k <= taps; ++k)
                for (int64_t i = 0; i < step_; ++i) to[k * C_ + i % C_] += weights_[k * kLanes + i];
        }
    }

  private:
    static LaidLines<T> laid(const DepthwiseArguments& args, bool transposed, T*& room) {
        const Window& w = args.width;
        const int64_t lines = laid_lines(args), places = laid_places(args, transposed);
        if (transposed) return {lines, w.output, args.channels, laid_margin(w), 1, places, room};
        return {lines, w.input, args.channels, w.padding, w.stride, places, room};
    }

    /// Each tap's weights, and the bias behind them, as often as pixels fill a vector.
    void spread_weights(const T* weight, const T* bias) {
        const int64_t taps = args_.taps();
        for (int64_t k = 0; k <= taps; ++k)
            for (int64_t i = 0; i < kLanes; ++i)
                weights_[k * kLanes + i] = k < taps ? weight[k * C_ + i % C_] : bias == nullptr ? T(0) : bias[i % C_];
    }

    /// Where the pixel under each column of taps lies in a line, for the first pixel of each turn of the result; -1: there
    /// is none.
    void set_offsets() {
        const Window& w = args_.width;
        for (int64_t turn = 0; turn < turns(); ++turn) {
            for (int64_t k = 0; k < w.kernel; ++k) {
                const int64_t back = turn + w.padding - k * w.dilation;
                int64_t& to = offsets_[turn * w.kernel + k];
                if (!transposed_)
                    to = lines_.at(k * w.dilation);
                else
                    to = back % w.stride == 0 ? (laid_margin(w) + back / w.stride) * C_ : -1;
            }
        }
    }

    int64_t turns() const { return transposed_ ? args_.width.stride : 1; }

    /// The taps of a line of the result that meet the pixels of a turn.
    int64_t gather(const T* in, int64_t first_line, int64_t position, int64_t turn) {
        const int64_t kernel = args_.width.kernel, *const offsets = offsets_ + turn * kernel;
        int64_t count = 0;
        for (int64_t i = 0; i < heights_.count[position]; ++i) {
            const Tap row = heights_.of(position)[i];
            const T* const from = lines_.line(in, first_line + row.from);
            for (int64_t k = 0; k < kernel; ++k) {
                if (offsets[k] < 0) continue;
                T* const weight = weights_ + (row.tap * kernel + k) * kLanes;
                sums_[count] = weight;
                taps_[count++] = {from + offsets[k], weight};
            }
        }
        return count;
    }

    void line(const T* in, int64_t first_line, int64_t position, T* to) {
        const Window& w = args_.width;
        const Vec<T> start = Vec<T>::load(weights_ + args_.taps() * kLanes);
        if (!transposed_) return laid_line(taps_, gather(in, first_line, position, 0), w.output * C_, step_, start, to);
        for (int64_t first = 0; first < w.stride && first < w.input; ++first) {  // pixels of the image in turns
            const int64_t pixels = (w.input - first - 1) / w.stride + 1;
            const int64_t count = gather(in, first_line, position, first);
            T* const place = w.stride == 1 ? to : spread_;
            laid_line(taps_, count, pixels * C_, step_, start, place);
            if (w.stride == 1) return;
            for (int64_t p = 0; p < pixels; ++p)
                for (int64_t c = 0; c < C_; ++c) to[(first + p * w.stride) * C_ + c] = place[p * C_ + c];
        }
    }

    void add(const T* grad, int64_t numbers, int64_t count) {
        int64_t k = 0;
        for (; k + 8 <= count; k += 8) laid_sums<8>(taps_ + k, grad, numbers, step_, sums_ + k);
        if (k + 4 <= count) laid_sums<4>(taps_ + k, grad, numbers, step_, sums_ + k), k += 4;
        if (k + 2 <= count) laid_sums<2>(taps_ + k, grad, numbers, step_, sums_ + k), k += 2;
        if (k < count) laid_sums<1>(taps_ + k, grad, numbers, step_, sums_ + k);
        T* const total = weights_ + args_.taps() * kLanes;
        Vec<T> sum = Vec<T>::load(total);
        for (int64_t i = 0; i < numbers; i += step_)
            sum = sum + Vec<T>::load(grad + i, numbers - i < step_ ? numbers - i : step_);
        sum.store(total);
    }

    const DepthwiseArguments& args_;
    bool transposed_;
    int64_t C_, step_;
    Taps heights_;
    T* numbers_;
    LaidLines<T> lines_;
    T *weights_, *spread_;  // [taps + 1, 16], weights or sums; one line of the result
    LaidTap<T>* taps_;
    T** sums_;
    int64_t* offsets_;
};

}  // namespace dnnsuite::fused::DNNSUITE_ISA
