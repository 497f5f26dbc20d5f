// SPDX-License-Identifier: MIT
// Convolution as products of the windows that filters see. The windows of a few lines are cut, multiplied while they are
// in the caches, and forgotten; the backward pass cuts them again. Compiled once per instruction set.
#include "fused/cpu/window_convolution_kernel.hpp"

#include "fused/cpu/gemm_tile.hpp"
#include "fused/cpu/tasks.hpp"
#include "fused/cpu/transpose.hpp"
#include "fused/cpu/window_costs.hpp"
#include "fused/cpu/window_lines.hpp"
#include "fused/cpu/window_positions.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

constexpr int64_t kDepth = 256;  // of a factor that is used at a time

/// A product C[rows, columns] of A, with any strides, and B, with rows that lie `ldb` apart.
template <class T>
struct Factors {
    Strided<T> a;
    const T* b;
    int64_t ldb;
    T* c;
    int64_t ldc;
};

/// C = A B over the depth in pieces, `more`: C already holds a sum.
template <class T>
void multiply(const Factors<T>& f, int64_t rows, int64_t columns, int64_t depth, bool more, Ahead* ahead = nullptr) {
    TileArguments<T> t{};
    t.ahead = ahead;
    t.a = f.a, t.b = f.b, t.ldb = f.ldb, t.c = f.c, t.ldc = f.ldc;
    for (int64_t k = 0; k < depth; k += kDepth) {
        t.depth = depth - k < kDepth ? depth - k : kDepth;
        t.more = more || k > 0;
        product(t, rows, columns);
        t.a.data += t.depth * t.a.column;
        t.b += t.depth * t.ldb;
    }
}

/// Few outputs fill no vector; then, or where a filter is used for few pixels only, sums run along the windows.
bool sums_along_windows(const WindowConvolutionArguments& args) {
    const int64_t depth = args.depth(), outputs = args.group_outputs();
    return (args.pixels() <= 8 && depth >= 32) || (outputs <= 8 && depth >= 48 * outputs);
}

/// Filters' gradients as [depth, outputs], to be turned at the end: with fewer vectors, if windows are short.
bool turns(const WindowConvolutionArguments& args) {
    const int64_t depth = args.depth(), outputs = args.group_outputs();
    return 2 * depth * (padded(outputs) / kLanes) <= outputs * (padded(depth) / kLanes);
}

/// The work on one group of some models: windows of a few lines at a time, cut once for models that share their images.
template <class T>
class Pass {
  public:
    Pass(const WindowConvolutionArguments& args, int64_t begin, int64_t end, void* scratch)
        : args_(args), begin_(begin), end_(end), windows_(static_cast<T*>(scratch)),
          filters_(windows_ + args.lines_at_once() * args.width.output * args.depth()), depth_(args.depth()) {}

    void forward() {
        const bool along = sums_along_windows(args_);
        each_group(
            [&](int64_t model) {
                if (!along) pack(model);
            },
            [&](int64_t model, const Lines& lines) { results(model, lines, along); }, [](int64_t) {});
    }

    void backward() {
        const bool turned = turns(args_);
        each_group(
            [&](int64_t model) {
                if (group_ == 0 && args_.dx != nullptr && !args_.is_pixelwise()) clear(model);
            },
            [&](int64_t model, const Lines& lines) {
                if (args_.dweight != nullptr) of_filters(model, lines, turned);
                if (args_.dbias != nullptr) of_bias(model, lines);
                if (args_.dx != nullptr) of_images(model, lines);
            },
            [&](int64_t model) {
                if (args_.dweight != nullptr && turned) turn(model);
            });
    }

    void forward_by_positions() {
        const bool along = sums_along_windows(args_);
        each_part([&](int64_t model, const Positions<T>& part) {
            if (!along) pack(model);
            part.forward(along ? nullptr : filters_, at<T>(args_.bias, model * args_.outputs + first_output()));
        });
    }

    void backward_by_positions() {
        const WindowCosts costs(args_);
        const bool turned = costs.turns_at_positions(), gathers = costs.gathers();
        each_part([&](int64_t model, const Positions<T>& part) {
            const int64_t first = first_line(), last = args_.last_sample * args_.height.output;
            const Lines all{first, last, (last - first) * args_.width.output, nullptr, 0};
            if (args_.dbias != nullptr) of_bias(model, all);
            if (args_.dweight != nullptr) {
                fill(turned ? filters_ : part.dweight, part.outputs * depth_, T(0));
                part.of_filters(turned ? filters_ : nullptr);
                if (turned) turn(model);
            }
            if (args_.dx == nullptr) return;
            if (gathers) return part.gather();
            if (group_ == 0) clear(model);
            part.scatter();
        });
    }

  private:
    /// Lines [first, last) of the result, and their windows: pixel by pixel, `ld` numbers apart.
    struct Lines {
        int64_t first, last, rows;
        const T* windows;
        int64_t ld;
    };

    /// use(model, its part of the group) for models and groups one by one.
    template <class Use>
    void each_part(const Use& use) {
        const int64_t pixel = args_.height.input * args_.width.input * args_.inputs;
        for (group_ = 0; group_ < args_.groups; ++group_) {
            for (first_ = begin_; first_ < end_; ++first_) {
                const int64_t in = args_.first_sample * pixel + group_ * args_.group_inputs();
                const int64_t out = result(first_, first_line()), own = first_ * args_.samples * pixel + in;
                const int64_t filter = (first_ * args_.outputs + first_output()) * depth_;
                use(first_,
                    Positions<T>{args_, at<T>(args_.x, first_ * args_.x_model + in), weight(first_),
                                 at<T>(args_.grad, out), mutable_at<T>(args_.y, out), mutable_at<T>(args_.dx, own),
                                 mutable_at<T>(args_.dweight, filter), args_.some_outputs()});
            }
        }
    }

    template <class Begin, class Use, class End>
    void each_group(const Begin& before, const Use& use, const End& after) {
        const int64_t together = args_.shares_x() ? end_ - begin_ : 1;
        for (group_ = 0; group_ < args_.groups; ++group_) {
            for (first_ = begin_; first_ < end_; first_ += together) {
                for (int64_t m = first_; m < first_ + together; ++m) before(m);
                each_lines([&](const Lines& lines) {
                    for (int64_t m = first_; m < first_ + together; ++m) use(m, lines);
                });
                for (int64_t m = first_; m < first_ + together; ++m) after(m);
            }
        }
    }

    template <class Use>
    void each_lines(const Use& use) {
        const int64_t step = args_.lines_at_once(), end = args_.last_sample * args_.height.output;
        const T* const x = at<T>(args_.x, first_ * args_.x_model + group_ * args_.group_inputs());
        for (int64_t first = first_line(); first < end; first += step) {
            const int64_t last = first + step < end ? first + step : end;
            Lines lines{first, last, (last - first) * args_.width.output, windows_, depth_};
            if (args_.is_pixelwise())
                lines.windows = x + first * args_.width.output * args_.inputs, lines.ld = args_.inputs;
            else if (args_.y != nullptr || args_.dweight != nullptr)
                cut_lines(args_, x, first, last, windows_);
            use(lines);
        }
    }

    int64_t first_line() const { return args_.first_sample * args_.height.output; }
    /// The first output of a group that is computed, among all of the model.
    int64_t first_output() const { return group_ * args_.group_outputs() + args_.first_output; }

    const T* weight(int64_t model) const {
        return at<T>(args_.weight, (model * args_.outputs + first_output()) * depth_);
    }
    int64_t result(int64_t model, int64_t line) const {
        return (model * args_.pixels() + line * args_.width.output) * args_.outputs + first_output();
    }
    T* filters(int64_t model) const { return filters_ + (model - first_) * window_panels(args_); }

    void pack(int64_t model) const {
        const int64_t outputs = args_.some_outputs();
        for (int64_t o = 0; o < outputs; o += kWindowPanel) {
            const int64_t count = outputs - o < kWindowPanel ? outputs - o : kWindowPanel;
            pack_transposed(weight(model) + o * depth_, depth_, count, depth_, T(1), filters(model) + o * depth_,
                            padded(count));
        }
    }

    void results(int64_t model, const Lines& lines, bool along) const {
        const int64_t outputs = args_.some_outputs();
        TileArguments<T> t{};
        t.init = at<T>(args_.bias, model * args_.outputs + first_output());
        t.c = mutable_at<T>(args_.y, result(model, lines.first));
        t.ldc = args_.outputs;
        t.a = {lines.windows, lines.ld, 1};
        if (along) {
            t.b = weight(model), t.ldb = t.depth = depth_;
            return dot_product(t, lines.rows, outputs);
        }
        for (int64_t k = 0; k < depth_; k += kDepth) {
            t.depth = depth_ - k < kDepth ? depth_ - k : kDepth;
            t.more = k > 0;
            for (int64_t o = 0; o < outputs; o += kWindowPanel) {
                const int64_t count = outputs - o < kWindowPanel ? outputs - o : kWindowPanel;
                TileArguments<T> panel = t;
                panel.a.data += k;
                panel.ldb = padded(count);
                panel.b = filters(model) + o * depth_ + k * panel.ldb;
                panel.c += o;
                if (panel.init != nullptr) panel.init += o;
                product(panel, lines.rows, count);
            }
        }
    }

    void clear(int64_t model) const {
        const int64_t image = args_.height.input * args_.width.input * args_.inputs;
        T* const dx = mutable_at<T>(args_.dx, (model * args_.samples + args_.first_sample) * image);
        fill(dx, (args_.last_sample - args_.first_sample) * image, T(0));
    }

    void of_filters(int64_t model, const Lines& lines, bool turned) const {
        const T* const grad = at<T>(args_.grad, result(model, lines.first));
        const int64_t outputs = args_.some_outputs();
        T* const to = mutable_at<T>(args_.dweight, (model * args_.outputs + first_output()) * depth_);
        const bool more = lines.first > first_line();
        Ahead ahead = next_gradients(model, lines);
        if (turned)
            multiply<T>({{lines.windows, 1, lines.ld}, grad, args_.outputs, filters(model), outputs}, depth_, outputs,
                        lines.rows, more, &ahead);
        else
            multiply<T>({{grad, 1, args_.outputs}, lines.windows, lines.ld, to, depth_}, outputs, depth_, lines.rows,
                        more, &ahead);
    }

    /// The results' gradients that are read after those of `lines`: another model's, or of the lines behind them.
    Ahead next_gradients(int64_t model, const Lines& lines) const {
        const bool turns_back = !args_.shares_x() || model + 1 == end_;
        const int64_t next = args_.shares_x() ? (turns_back ? first_ : model + 1) : model;
        const int64_t line = turns_back ? lines.last : lines.first, all = args_.last_sample * args_.height.output;
        const int64_t left = all - line, step = lines.last - lines.first, count = left < step ? left : step;
        const T* const from = at<T>(args_.grad, result(next, line));
        const T* const to = from + count * args_.width.output * args_.outputs;
        return {reinterpret_cast<const char*>(from), reinterpret_cast<const char*>(to)};
    }

    void turn(int64_t model) const {
        const int64_t outputs = args_.some_outputs();
        T* const to = mutable_at<T>(args_.dweight, (model * args_.outputs + first_output()) * depth_);
        pack_transposed(filters(model), outputs, depth_, outputs, T(1), to, depth_);
    }

    /// A few rows at a time: the next vector of columns finds them in the caches.
    void of_bias(int64_t model, const Lines& lines) const {
        constexpr int64_t kRows = 32;
        const int64_t all = args_.outputs;
        const T* grad = at<T>(args_.grad, result(model, lines.first));
        T* const to = mutable_at<T>(args_.dbias, model * all + first_output());
        for (int64_t row = 0; row < lines.rows; row += kRows, grad += kRows * all) {
            const int64_t rows = lines.rows - row < kRows ? lines.rows - row : kRows;
            const bool more = lines.first > first_line() || row > 0;
            for_each_vector(args_.some_outputs(), [&](int64_t i, int64_t n) __attribute__((always_inline)) {
                Vec<T> total = more ? Vec<T>::load(to + i, n) : Vec<T>(T(0));
                for (int64_t r = 0; r < rows; ++r) total = total + Vec<T>::load(grad + r * all + i, n);
                total.store(to + i, n);
            });
        }
    }

    /// The windows' gradients take the place of the windows, which were used before.
    void of_images(int64_t model, const Lines& lines) const {
        const int64_t pixels = args_.samples * args_.height.input * args_.width.input;
        T* const dx = mutable_at<T>(args_.dx, model * pixels * args_.inputs + group_ * args_.group_inputs());
        const T* const grad = at<T>(args_.grad, result(model, lines.first));
        const bool direct = args_.is_pixelwise();
        T* const to = direct ? dx + lines.first * args_.width.output * args_.inputs : windows_;
        multiply<T>({{grad, args_.outputs, 1}, weight(model), depth_, to, lines.ld}, lines.rows, depth_,
                    args_.some_outputs(), false);
        if (!direct) add_lines(args_, windows_, lines.first, lines.last, dx);
    }

    const WindowConvolutionArguments& args_;
    int64_t begin_, end_, group_ = 0, first_ = 0;
    T *windows_, *filters_;
    int64_t depth_;
};

template <class T>
void forward(const WindowConvolutionArguments& args, int64_t begin, int64_t end, void* scratch) {
    Pass<T> pass(args, begin, end, scratch);
    WindowCosts(args).forward_by_positions() ? pass.forward_by_positions() : pass.forward();
}

/// Each gradient in its way, whichever others are asked for: so are its bits the same.
template <class T>
void backward(const WindowConvolutionArguments& args, int64_t begin, int64_t end, void* scratch) {
    const WindowCosts costs(args);
    WindowConvolutionArguments windows = args, positions = args;
    (costs.filters_by_positions() ? windows : positions).dweight = nullptr;
    (costs.images_by_positions() ? windows : positions).dx = nullptr;
    const bool cuts = windows.dweight != nullptr || windows.dx != nullptr;
    (cuts ? positions : windows).dbias = nullptr;
    if (cuts) Pass<T>(windows, begin, end, scratch).backward();
    Pass<T>(positions, begin, end, scratch).backward_by_positions();
}

}  // namespace

void window_convolution(const WindowConvolutionArguments& args, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64) return forward<double>(args, begin, end, scratch);
    forward<float>(args, begin, end, scratch);
}

void window_convolution_backward(const WindowConvolutionArguments& args, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64) return backward<double>(args, begin, end, scratch);
    backward<float>(args, begin, end, scratch);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
