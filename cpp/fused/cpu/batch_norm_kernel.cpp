// SPDX-License-Identifier: MIT
// Batch norm (Ioffe, Szegedy 2015) with the activation and residual that follow it. Forward reads x twice, backward x
// and the gradient twice; one model's share mostly stays in L2 between the two. Sums are of x - shift, the shift near
// the mean (from a few rows), so that one pass loses no digits. Compiled once per instruction set.
#include "fused/cpu/batch_norm_kernel.hpp"

#include <initializer_list>
#include <type_traits>

#include "fused/cpu/batch_norm_loops.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

constexpr int64_t kSamples = 8;  // rows (of planes: images) that the shift is the mean of

/// One model: where its parameters and sums lie in the scratch.
template <class T>
struct Model {
    const BatchNormArguments& args;
    int64_t model, columns;  // columns: of the parameters; with planes the channels
    T *shift, *mean, *scale, *bias, *curve, *level, *first, *second;
    double *total_first, *total_second;

    Model(const BatchNormArguments& a, int64_t index, void* scratch)
        : args(a), model(index), columns(a.planes ? a.channels : a.rows.columns) {
        const int64_t sums = a.planes ? a.rows.rows : a.rows.tasks_per_model * columns;
        total_first = static_cast<double*>(scratch);
        total_second = total_first + columns;
        T* room = reinterpret_cast<T*>(total_second + columns);
        for (T** each : {&shift, &mean, &scale, &bias, &curve, &level}) {
            *each = room;
            room += padded(columns);
        }
        first = room;
        second = room + padded(sums);
    }

    const T* x() const { return at<T>(args.x, model * args.x_stride); }
    T* channels_of(void* base) const { return mutable_at<T>(base, model * args.channels); }
    const T* channels_of(const void* base) const { return at<T>(base, model * args.channels); }
    /// Values of a channel; of an empty batch, whose sums are 0, one.
    double count() const {
        const int64_t values = args.values_per_channel();
        return values > 0 ? static_cast<double>(values) : 1.0;
    }
    /// 0: mean, 1: 1 / deviation, 2: unbiased variance.
    T* statistic(int64_t which) const {
        return mutable_at<T>(args.statistics, (which * args.rows.models + model) * args.channels);
    }

    /// Writes to[column] = value(channel) for every column.
    template <class Value>
    void spread(T* to, const Value& value) const {
        int64_t j = 0;
        while (j < columns) {
            for (int64_t c = 0; c < args.channels; ++c) {
                const int64_t last = j + (args.planes ? 1 : args.inner);
                for (const T v = value(c); j < last; ++j) to[j] = v;
            }
        }
    }

    /// to[channel] = sum of from[column] over the channel's columns.
    template <class Number>
    void gather(const Number* from, double* to) const {
        for (int64_t c = 0; c < args.channels; ++c) to[c] = 0.0;
        int64_t j = 0;
        while (j < columns) {
            for (int64_t c = 0; c < args.channels; ++c)
                for (const int64_t last = j + (args.planes ? 1 : args.inner); j < last; ++j)
                    to[c] += static_cast<double>(from[j]);
        }
    }

    /// The tasks' (or planes') sums, added in order, for each channel.
    void collect(const T* sums, double* total, double* room) const {
        const int64_t parts = args.planes ? args.rows.rows / args.channels : args.rows.tasks_per_model;
        for (int64_t j = 0; j < columns; ++j) room[j] = 0.0;
        for (int64_t part = 0; part < parts; ++part)
            for (int64_t j = 0; j < columns; ++j) room[j] += static_cast<double>(sums[part * columns + j]);
        if (args.planes || columns == args.channels)
            for (int64_t j = 0; j < columns; ++j) total[j] = room[j];
        else
            gather(room, total);
    }
};

/// Calls row(first element, columns, index of the row) for the rows of a task.
template <class T, class Row>
void for_each_row(const Model<T>& m, int64_t index, const Row& row) {
    const Rows& rows = m.args.rows;
    const Task task = task_at(rows, index);
    for (int64_t r = task.first_row; r < task.last_row; ++r) {
        const int64_t left = rows.elements - r * rows.columns;
        row(r * rows.columns, left < rows.columns ? left : rows.columns, r);
    }
}

/// Destination of a row's sums, and its parameters.
template <bool planes, class T>
Sums<planes, T> sums_of(const Model<T>& m, int64_t task, int64_t row) {
    const int64_t place = planes ? row : task * m.columns;
    return {m.first + place, m.second + place};
}

template <bool planes, class T>
Affine<planes, T> affine_of(const Model<T>& m, int64_t row, bool streams = false) {
    const int64_t c = planes ? row % m.args.channels : 0;
    return {{m.mean + c},  {m.scale + c}, {m.bias + c},
            {m.curve + c}, {m.level + c}, Vec<T>(static_cast<T>(m.args.slope)),
            streams};
}

/// True if what is written from `to` on is to go past the caches, and is whole vectors that begin with a line.
template <class T>
bool streams_to(const BatchNormArguments& args, const T* to) {
    const bool whole = args.rows.columns % kLanes == 0 && args.rows.elements % kLanes == 0;
    return args.streams && whole && reinterpret_cast<uintptr_t>(to) % 64 == 0;
}

template <class T>
void clear_sums(const Model<T>& m, int64_t task) {
    if (m.args.planes) return;
    fill(m.first + task * m.columns, m.columns, T(0));
    fill(m.second + task * m.columns, m.columns, T(0));
}

/// The mean of a few rows, or of 16 numbers in each of a few planes, for each channel.
template <class T>
void choose_shift(const Model<T>& m) {
    const Rows& rows = m.args.rows;
    const int64_t units = m.args.planes ? rows.rows / m.args.channels : rows.elements / rows.columns;
    const int64_t samples = units < kSamples ? units : kSamples;
    const T* x = m.x();
    fill(m.shift, m.columns, T(0));
    for (int64_t k = 0; k < samples; ++k) {
        const int64_t unit = k * units / samples;
        if (m.args.planes) {
            for (int64_t c = 0; c < m.columns; ++c)
                m.shift[c] = m.shift[c] + sum(Vec<T>::load(x + (unit * m.columns + c) * rows.columns));
        } else {
            for (int64_t j = 0; j < m.columns; ++j) m.shift[j] += x[unit * m.columns + j];
        }
    }
    double* total = m.total_first;
    m.gather(m.shift, total);
    const double each = m.args.planes ? kLanes : static_cast<double>(m.columns / m.args.channels);
    const double count = samples > 0 ? each * static_cast<double>(samples) : 1.0;
    m.spread(m.shift, [&](int64_t c) { return static_cast<T>(total[c] / count); });
}

template <class T>
void prepare_parameters(const Model<T>& m) {
    const T *weight = m.channels_of(m.args.weight), *bias = m.channels_of(m.args.bias);
    const T *mean = m.statistic(0), *inverse = m.statistic(1);
    m.spread(m.mean, [&](int64_t c) { return mean[c]; });
    m.spread(m.scale, [&](int64_t c) { return weight == nullptr ? inverse[c] : weight[c] * inverse[c]; });
    m.spread(m.bias, [&](int64_t c) { return bias == nullptr ? T(0) : bias[c]; });
}

/// The statistics from the sums, or those that were given.
template <class T>
void combine_forward(const Model<T>& m) {
    const int64_t channels = m.args.channels;
    const T *given_mean = m.channels_of(m.args.given_mean), *given_variance = m.channels_of(m.args.given_variance);
    T *mean = m.statistic(0), *inverse = m.statistic(1), *variance = m.statistic(2);
    const double n = m.count();
    if (m.args.training) {
        double* room = reinterpret_cast<double*>(m.mean);  // mean to level are not yet in use: 5 columns or more
        m.collect(m.first, m.total_first, room);
        m.collect(m.second, m.total_second, room);
    }
    for (int64_t c = 0; c < channels; ++c) {
        double var = 0.0;
        if (m.args.training) {
            const double shifted = m.total_first[c] / n;
            const T shift = m.shift[m.args.planes ? c : c * m.args.inner];
            const double squares = m.total_second[c] - shifted * m.total_first[c];
            mean[c] = static_cast<T>(static_cast<double>(shift) + shifted);
            var = squares < 0.0 ? 0.0 : squares / n;
            variance[c] = static_cast<T>(n > 1.0 ? var * n / (n - 1.0) : var);
        } else {
            mean[c] = given_mean[c];
            variance[c] = given_variance[c];
            var = static_cast<double>(given_variance[c]);
        }
        inverse[c] = static_cast<T>(1.0 / square_root(var + m.args.eps));
    }
    prepare_parameters(m);
}

/// The parameters' gradients, and what dx takes from the statistics' dependence on x.
template <class T>
void combine_backward(const Model<T>& m) {
    double* room = reinterpret_cast<double*>(m.curve);  // curve and level: as many bytes as columns of double
    const T *inverse = m.statistic(1), *weight = m.channels_of(m.args.weight);
    T *dweight = m.channels_of(m.args.dweight), *dbias = m.channels_of(m.args.dbias);
    m.collect(m.first, m.total_first, room);
    m.collect(m.second, m.total_second, room);
    const double n = m.count();
    for (int64_t c = 0; c < m.args.channels; ++c) {
        const double inv = static_cast<double>(inverse[c]);
        dweight[c] = static_cast<T>(m.total_second[c] * inv);
        dbias[c] = static_cast<T>(m.total_first[c]);
    }
    const double used = m.args.training ? 1.0 / n : 0.0;
    const auto scale = [&](int64_t c) {
        return static_cast<double>(inverse[c]) * (weight == nullptr ? 1.0 : static_cast<double>(weight[c]));
    };
    m.spread(m.level, [&](int64_t c) { return static_cast<T>(scale(c) * m.total_first[c] * used); });
    m.spread(m.curve, [&](int64_t c) {
        const double inv = static_cast<double>(inverse[c]);
        return static_cast<T>(scale(c) * inv * inv * m.total_second[c] * used);
    });
}

template <bool planes, class T>
void sum_forward(const Model<T>& m, int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
        clear_sums(m, task);
        for_each_row(m, task, [&](int64_t at, int64_t n, int64_t row) {
            const Parameter<planes, T> shift{m.shift + (planes ? row % m.args.channels : 0)};
            moments<planes>(m.x() + at, n, shift, sums_of<planes>(m, task, row));
        });
    }
}

/// The last task first: its numbers are those that the sums have left in the caches.
template <bool planes, NormActivation kind, bool add, class T>
void apply_forward(const Model<T>& m, int64_t begin, int64_t end) {
    const T* residual = at<T>(m.args.residual, m.model * m.args.residual_stride);
    T* y = mutable_at<T>(m.args.y, m.model * m.args.rows.elements);
    const bool streams = streams_to(m.args, y);
    for (int64_t task = end - 1; task >= begin; --task) {
        for_each_row(m, task, [&](int64_t at, int64_t n, int64_t row) {
            normalise<planes, kind, add>(m.x() + at, add ? residual + at : nullptr, y + at, n,
                                         affine_of<planes>(m, row, streams));
        });
    }
    if (streams) finish_streams();
}

template <bool planes, NormActivation kind, bool add, class T>
void sum_backward(const Model<T>& m, int64_t begin, int64_t end) {
    const T* residual = at<T>(m.args.residual, m.model * m.args.residual_stride);
    const T* grad = at<T>(m.args.grad, m.model * m.args.grad_stride);
    T* dresidual = mutable_at<T>(m.args.dresidual, m.model * m.args.rows.elements);
    for (int64_t task = begin; task < end; ++task) {
        clear_sums(m, task);
        for_each_row(m, task, [&](int64_t at, int64_t n, int64_t row) {
            gradient_sums<planes, kind, add>(m.x() + at, add ? residual + at : nullptr, grad + at,
                                             add ? dresidual + at : nullptr, n, affine_of<planes>(m, row),
                                             sums_of<planes>(m, task, row));
        });
    }
}

/// `left` is the activation that is still to be gone through: none where a residual's gradient was written before.
template <bool planes, NormActivation left, class T>
void apply_backward(const Model<T>& m, int64_t begin, int64_t end) {
    const T* grad = m.args.residual != nullptr ? mutable_at<T>(m.args.dresidual, m.model * m.args.rows.elements)
                                               : at<T>(m.args.grad, m.model * m.args.grad_stride);
    T* dx = mutable_at<T>(m.args.dx, m.model * m.args.rows.elements);
    const bool streams = streams_to(m.args, dx);
    for (int64_t task = end - 1; task >= begin; --task) {
        for_each_row(m, task, [&](int64_t at, int64_t n, int64_t row) {
            gradient<planes, left>(m.x() + at, grad + at, dx + at, n, affine_of<planes>(m, row, streams));
        });
    }
    if (streams) finish_streams();
}

/// Calls body(kind as a constant) for the activation.
template <class Body>
void by_activation(NormActivation kind, const Body& body) {
    using A = NormActivation;
    switch (kind) {
        case A::kNone: return body(std::integral_constant<A, A::kNone>());
        case A::kRelu: return body(std::integral_constant<A, A::kRelu>());
        case A::kRelu6: return body(std::integral_constant<A, A::kRelu6>());
        case A::kLeakyRelu: return body(std::integral_constant<A, A::kLeakyRelu>());
        case A::kHardswish: return body(std::integral_constant<A, A::kHardswish>());
        case A::kSilu: return body(std::integral_constant<A, A::kSilu>());
    }
}

template <class Body>
void by_layout(const BatchNormArguments& args, const Body& body) {
    by_activation(args.activation, [&](auto kind) {
        const auto add = [&](auto planes) {
            args.residual != nullptr ? body(planes, kind, std::true_type()) : body(planes, kind, std::false_type());
        };
        args.planes ? add(std::true_type()) : add(std::false_type());
    });
}

template <class T>
void forward(const BatchNormArguments& args, int64_t model, BatchNormStep step, int64_t begin, int64_t end,
             void* room) {
    const Model<T> m(args, model, room);
    switch (step) {
        case BatchNormStep::kPrepare: return args.training ? choose_shift(m) : void();
        case BatchNormStep::kSums:
            if (!args.training) return;
            return args.planes ? sum_forward<true>(m, begin, end) : sum_forward<false>(m, begin, end);
        case BatchNormStep::kCombine: return combine_forward(m);
        case BatchNormStep::kApply:
            by_layout(args, [&](auto planes, auto kind, auto add) { apply_forward<planes, kind, add>(m, begin, end); });
    }
}

template <class T>
void backward(const BatchNormArguments& args, int64_t model, BatchNormStep step, int64_t begin, int64_t end,
              void* room) {
    const Model<T> m(args, model, room);
    switch (step) {
        case BatchNormStep::kPrepare: return prepare_parameters(m);
        case BatchNormStep::kSums:
            return by_layout(args,
                             [&](auto planes, auto kind, auto add) { sum_backward<planes, kind, add>(m, begin, end); });
        case BatchNormStep::kCombine: return combine_backward(m);
        case BatchNormStep::kApply:
            by_activation(args.residual != nullptr ? NormActivation::kNone : args.activation, [&](auto left) {
                args.planes ? apply_backward<true, left>(m, begin, end) : apply_backward<false, left>(m, begin, end);
            });
    }
}

// Float64, which serves checks, is four registers to a Vec with AVX2, and takes longer to compile than all else here:
// there the generic kernels do it.
#if defined(__AVX2__) && !defined(__AVX512F__)
#define DNNSUITE_FLOAT64(name) generic::batch_norm_##name
#else
#define DNNSUITE_FLOAT64(name) name<double>
#endif

}  // namespace

void batch_norm_forward(const BatchNormArguments& args, int64_t model, BatchNormStep step, int64_t begin, int64_t end,
                        void* scratch) {
    if (args.dtype == DType::kFloat64) return DNNSUITE_FLOAT64(forward)(args, model, step, begin, end, scratch);
    forward<float>(args, model, step, begin, end, scratch);
}

void batch_norm_backward(const BatchNormArguments& args, int64_t model, BatchNormStep step, int64_t begin, int64_t end,
                         void* scratch) {
    if (args.dtype == DType::kFloat64) return DNNSUITE_FLOAT64(backward)(args, model, step, begin, end, scratch);
    backward<float>(args, model, step, begin, end, scratch);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
