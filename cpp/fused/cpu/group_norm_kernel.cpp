// SPDX-License-Identifier: MIT
// Group norm (Wu, He 2018), samples contiguous or with the channels last. A sample mostly stays in L2 between the passes
// over it; the backward pass computes its statistics again. Compiled once per instruction set.
#include "fused/cpu/group_norm_kernel.hpp"

#include <cstring>
#include <initializer_list>

#include "fused/cpu/batch_norm_loops.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

template <class T>
struct Group {
    T mean, inverse;
};

/// Of `count` (16 or more) numbers; sums are of what is left of a value near the mean, so that no digits are lost.
template <class T>
Group<T> statistics(const T* x, int64_t count, double eps) {
    const T shift = sum(Vec<T>::load(x)) / T(kLanes);
    T first, second;
    moments<true>(x, count, Parameter<true, T>{&shift}, Sums<true, T>{&first, &second});
    const double n = static_cast<double>(count), shifted = static_cast<double>(first) / n;
    const double variance = static_cast<double>(second) / n - shifted * shifted;
    return {static_cast<T>(static_cast<double>(shift) + shifted),
            static_cast<T>(1.0 / square_root((variance < 0.0 ? 0.0 : variance) + eps))};
}

/// Calls body(first channel, one after the last, statistics, first element) for each group of the sample at x.
template <class T, class Body>
void for_each_group(const GroupNormArguments& args, const T* x, const Body& body) {
    const int64_t each = args.channels / args.groups;
    for (int64_t c = 0; c < args.channels; c += each)
        body(c, c + each, statistics(x + c * args.inner, each * args.inner, args.eps));
}

template <class T>
void forward(const GroupNormArguments& args, int64_t begin, int64_t end) {
    const int64_t inner = args.inner, sample = args.channels * inner;
    for (int64_t s = begin; s < end; ++s) {
        const int64_t parameter = s / args.batch * args.channels;
        const T *weight = at<T>(args.weight, parameter), *bias = at<T>(args.bias, parameter);
        const T* x = at<T>(args.x, s * sample);
        T* y = mutable_at<T>(args.y, s * sample);
        for_each_group(args, x, [&](int64_t c, int64_t last, const Group<T>& group) {
            for (; c < last; ++c) {
                const T scale = weight == nullptr ? group.inverse : group.inverse * weight[c];
                const T offset = bias == nullptr ? T(0) : bias[c];
                const Affine<true, T> p{{&group.mean}, {&scale}, {&offset}, {}, {}, Vec<T>(T(0))};
                normalise<true, NormActivation::kNone, false>(x + c * inner, static_cast<const T*>(nullptr),
                                                              y + c * inner, inner, p);
            }
        });
    }
}

/// dx of a group's channels from the sums of g and g * (x - mean) of each.
template <class T>
void group_gradient(const GroupNormArguments& args, const T* x, const T* grad, const T* weight, T* dx, int64_t begin,
                    int64_t end, const Group<T>& group, const T* first, const T* second) {
    const int64_t inner = args.inner;
    double level_sum = 0.0, curve_sum = 0.0;
    for (int64_t c = begin; c < end; ++c) {
        const double w = weight == nullptr ? 1.0 : static_cast<double>(weight[c]);
        level_sum += w * static_cast<double>(first[c]);
        curve_sum += w * static_cast<double>(second[c]);
    }
    const double n = static_cast<double>((end - begin) * inner), inverse = static_cast<double>(group.inverse);
    const T level = static_cast<T>(inverse * level_sum / n);
    const T curve = static_cast<T>(inverse * inverse * inverse * curve_sum / n);
    for (int64_t c = begin; c < end; ++c) {
        const T scale = weight == nullptr ? group.inverse : group.inverse * weight[c];
        const Affine<true, T> p{{&group.mean}, {&scale}, {}, {&curve}, {&level}, Vec<T>(T(0))};
        gradient<true, NormActivation::kNone>(x + c * inner, grad + c * inner, dx + c * inner, inner, p);
    }
}

template <class T>
void backward(const GroupNormArguments& args, int64_t begin, int64_t end, T* sums) {
    const int64_t inner = args.inner, sample = args.channels * inner;
    const T zero(0);
    for (int64_t s = begin; s < end; ++s) {
        const T* weight = at<T>(args.weight, s / args.batch * args.channels);
        const T *x = at<T>(args.x, s * sample), *grad = at<T>(args.grad, s * sample);
        T* dx = mutable_at<T>(args.dx, s * sample);
        T *first = sums + s * 2 * args.channels, *second = first + args.channels;
        for_each_group(args, x, [&](int64_t begin_channel, int64_t last, const Group<T>& group) {
            const Affine<true, T> p{{&group.mean}, {&zero}, {&zero}, {}, {}, Vec<T>(T(0))};
            for (int64_t c = begin_channel; c < last; ++c)
                gradient_sums<true, NormActivation::kNone, false>(x + c * inner, static_cast<const T*>(nullptr),
                                                                  grad + c * inner, static_cast<T*>(nullptr), inner, p,
                                                                  Sums<true, T>{first + c, second + c});
            group_gradient(args, x, grad, weight, dx, begin_channel, last, group, first, second);
            for (int64_t c = begin_channel; c < last; ++c) second[c] = second[c] * group.inverse;
        });
    }
}

constexpr int64_t kExactRows = 256;  // rows whose sums keep their digits in T
constexpr int64_t kSamples = 8;      // pixels that the shift is the mean of

/// A sample with the channels last, several pixels to a row, and what each column has. Its loops over rows are flattened:
/// a call for each row takes half as long as the row.
template <class T>
struct Pixels {
    const GroupNormArguments& args;
    const int64_t channels, columns, elements, each;
    T *mean, *inverse, *scale, *bias, *curve, *level, *first, *second;
    double *total_first, *total_second;  // of a channel

    Pixels(const GroupNormArguments& a, void* scratch)
        : args(a), channels(a.channels), columns(a.columns), elements(a.channels * a.inner),
          each(a.channels / a.groups), total_first(static_cast<double*>(scratch)),
          total_second(total_first + channels) {
        T* room = reinterpret_cast<T*>(total_second + channels);
        for (T** at : {&mean, &inverse, &scale, &bias, &curve, &level, &first, &second}) {
            *at = room;
            room += padded(columns);
        }
    }

    /// to[column] = value(channel).
    template <class Value>
    void spread(T* to, const Value& value) const {
        for (int64_t c = 0; c < channels; ++c) to[c] = value(c);
        for (int64_t j = channels; j < columns; j += channels)
            std::memcpy(to + j, to, static_cast<size_t>(channels) * sizeof(T));
    }

    /// Calls group(first channel, one after the last) for each.
    template <class Body>
    void for_each_group(const Body& group) const {
        for (int64_t c = 0; c < channels; c += each) group(c, c + each);
    }

    /// Calls row(first element, columns) for rows [begin, end).
    template <class Row>
    void for_each_row(int64_t begin, int64_t end, const Row& row) const {
        for (int64_t r = begin; r < end; ++r) {
            const int64_t left = elements - r * columns;
            row(r * columns, left < columns ? left : columns);
        }
    }
    int64_t rows() const { return (elements + columns - 1) / columns; }

    /// The sums over the channels' columns and the rows of what row(...) adds to `first` and `second`.
    template <class Row>
    void add_up(const Row& row) const {
        fill(total_first, channels, 0.0);
        fill(total_second, channels, 0.0);
        for (int64_t begin = 0; begin < rows(); begin += kExactRows) {
            fill(first, columns, T(0));
            fill(second, columns, T(0));
            for_each_row(begin, begin + kExactRows < rows() ? begin + kExactRows : rows(), row);
            for (int64_t j = 0; j < columns; j += channels) {
                for (int64_t c = 0; c < channels; ++c) {
                    total_first[c] += static_cast<double>(first[j + c]);
                    total_second[c] += static_cast<double>(second[j + c]);
                }
            }
        }
    }

    /// The mean of a few pixels of the group, for each channel: what is left of a value loses no digits.
    void choose_shift(const T* x) const {
        const int64_t count = args.inner < kSamples ? args.inner : kSamples;
        fill(first, channels, T(0));
        for (int64_t k = 0; k < count; ++k) {
            const T* pixel = x + k * args.inner / count * channels;
            for (int64_t c = 0; c < channels; ++c) first[c] += pixel[c];
        }
        for_each_group([&](int64_t c, int64_t last) {
            double total = 0.0;
            for (int64_t i = c; i < last; ++i) total += static_cast<double>(first[i]);
            const T shift = static_cast<T>(total / static_cast<double>(count * each));
            for (; c < last; ++c) mean[c] = shift;
        });
        spread(mean, [&](int64_t c) { return mean[c]; });
    }

    /// `mean` and `inverse` of the sample at x.
    __attribute__((flatten)) void find_statistics(const T* x) const {
        choose_shift(x);
        add_up([&](int64_t at, int64_t n) {
            moments<false>(x + at, n, Parameter<false, T>{mean}, Sums<false, T>{first, second});
        });
        for_each_group([&](int64_t c, int64_t last) {
            double sum_first = 0.0, sum_second = 0.0;
            for (int64_t i = c; i < last; ++i) sum_first += total_first[i], sum_second += total_second[i];
            const double n = static_cast<double>(each * args.inner), shifted = sum_first / n;
            const double variance = sum_second / n - shifted * shifted;
            const T centre = static_cast<T>(static_cast<double>(mean[c]) + shifted);
            const T root = static_cast<T>(1.0 / square_root((variance < 0.0 ? 0.0 : variance) + args.eps));
            for (; c < last; ++c) mean[c] = centre, inverse[c] = root;
        });
        spread(mean, [&](int64_t c) { return mean[c]; });
    }

    __attribute__((flatten)) void forward(const T* x, const T* weight, const T* offset, T* y) const {
        find_statistics(x);
        spread(scale, [&](int64_t c) { return weight == nullptr ? inverse[c] : inverse[c] * weight[c]; });
        spread(bias, [&](int64_t c) { return offset == nullptr ? T(0) : offset[c]; });
        const Affine<false, T> p{{mean}, {scale}, {bias}, {}, {}, Vec<T>(T(0))};
        for_each_row(0, rows(), [&](int64_t at, int64_t n) {
            normalise<false, NormActivation::kNone, false>(x + at, static_cast<const T*>(nullptr), y + at, n, p);
        });
    }

    /// dx, and the sample's part of the parameters' gradients, `sums` [2, C].
    __attribute__((flatten)) void backward(const T* x, const T* grad, const T* weight, T* dx, T* sums) const {
        find_statistics(x);
        const Affine<false, T> p{{mean}, {scale}, {bias}, {curve}, {level}, Vec<T>(T(0))};
        add_up([&](int64_t at, int64_t n) {
            gradient_sums<false, NormActivation::kNone, false>(x + at, static_cast<const T*>(nullptr), grad + at,
                                                               static_cast<T*>(nullptr), n, p,
                                                               Sums<false, T>{first, second});
        });
        for (int64_t c = 0; c < channels; ++c) {
            sums[c] = static_cast<T>(total_first[c]);
            sums[channels + c] = static_cast<T>(total_second[c] * static_cast<double>(inverse[c]));
        }
        spread(scale, [&](int64_t c) { return weight == nullptr ? inverse[c] : inverse[c] * weight[c]; });
        find_slopes(weight);
        for_each_row(0, rows(), [&](int64_t at, int64_t n) {
            gradient<false, NormActivation::kNone>(x + at, grad + at, dx + at, n, p);
        });
    }

    /// What dx takes from the statistics' dependence on x.
    void find_slopes(const T* weight) const {
        for_each_group([&](int64_t c, int64_t last) {
            double level_sum = 0.0, curve_sum = 0.0;
            for (int64_t i = c; i < last; ++i) {
                const double w = weight == nullptr ? 1.0 : static_cast<double>(weight[i]);
                level_sum += w * total_first[i];
                curve_sum += w * total_second[i];
            }
            const double n = static_cast<double>(each * args.inner), root = static_cast<double>(inverse[c]);
            for (; c < last; ++c) {
                level[c] = static_cast<T>(root * level_sum / n);
                curve[c] = static_cast<T>(root * root * root * curve_sum / n);
            }
        });
        spread(level, [&](int64_t c) { return level[c]; });
        spread(curve, [&](int64_t c) { return curve[c]; });
    }
};

template <class T>
void forward_pixels(const GroupNormArguments& args, int64_t begin, int64_t end, void* scratch) {
    const Pixels<T> pixels(args, scratch);
    for (int64_t s = begin; s < end; ++s) {
        const int64_t parameter = s / args.batch * args.channels, at_sample = s * pixels.elements;
        pixels.forward(at<T>(args.x, at_sample), at<T>(args.weight, parameter), at<T>(args.bias, parameter),
                       mutable_at<T>(args.y, at_sample));
    }
}

template <class T>
void backward_pixels(const GroupNormArguments& args, int64_t begin, int64_t end, T* sums, void* scratch) {
    const Pixels<T> pixels(args, scratch);
    for (int64_t s = begin; s < end; ++s) {
        const int64_t at_sample = s * pixels.elements;
        pixels.backward(at<T>(args.x, at_sample), at<T>(args.grad, at_sample),
                        at<T>(args.weight, s / args.batch * args.channels), mutable_at<T>(args.dx, at_sample),
                        sums + s * 2 * args.channels);
    }
}

template <class T>
void forward_samples(const GroupNormArguments& args, int64_t begin, int64_t end, void* scratch) {
    args.columns > 0 ? forward_pixels<T>(args, begin, end, scratch) : forward<T>(args, begin, end);
}

template <class T>
void backward_samples(const GroupNormArguments& args, int64_t begin, int64_t end, T* sums, void* scratch) {
    args.columns > 0 ? backward_pixels(args, begin, end, sums, scratch) : backward(args, begin, end, sums);
}

}  // namespace

void group_norm_forward(const GroupNormArguments& args, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64) return forward_samples<double>(args, begin, end, scratch);
    forward_samples<float>(args, begin, end, scratch);
}

void group_norm_backward(const GroupNormArguments& args, int64_t begin, int64_t end, void* sums, void* scratch) {
    if (args.dtype == DType::kFloat64) return backward_samples(args, begin, end, static_cast<double*>(sums), scratch);
    backward_samples(args, begin, end, static_cast<float*>(sums), scratch);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
