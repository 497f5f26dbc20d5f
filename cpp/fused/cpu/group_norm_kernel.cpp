// SPDX-License-Identifier: MIT
// Group norm (Wu, He 2018), samples contiguous or with the channels last. A sample mostly stays in L2 between the passes
// over it; the backward pass computes its statistics again. Compiled once per instruction set.
#include "fused/cpu/group_norm_kernel.hpp"

#include "fused/cpu/batch_norm_loops.hpp"
#include "fused/cpu/group_norm_pixels.hpp"

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

/// The samples of a task.
struct Samples {
    int64_t first, last;
};
Samples samples_of(const GroupNormArguments& args, int64_t task) {
    const int64_t tasks = args.tasks_per_model(), model = task / tasks * args.batch,
                  first = task % tasks * args.samples;
    const int64_t last = first + args.samples < args.batch ? first + args.samples : args.batch;
    return {model + first, model + last};
}

/// The gradient of one sample; what it brings to the parameters' gradients is added to `total` [2, C], with the help of
/// `room` [2, C].
template <class T>
void sample_gradient(const GroupNormArguments& args, int64_t s, T* total, T* room) {
    const int64_t inner = args.inner, sample = args.channels * inner;
    const T zero(0);
    const T* weight = at<T>(args.weight, s / args.batch * args.channels);
    const T *x = at<T>(args.x, s * sample), *grad = at<T>(args.grad, s * sample);
    T* dx = mutable_at<T>(args.dx, s * sample);
    T *first = room, *second = first + args.channels;
    for_each_group(args, x, [&](int64_t begin_channel, int64_t last, const Group<T>& group) {
        const Affine<true, T> p{{&group.mean}, {&zero}, {&zero}, {}, {}, Vec<T>(T(0))};
        for (int64_t c = begin_channel; c < last; ++c)
            gradient_sums<true, NormActivation::kNone, false>(x + c * inner, static_cast<const T*>(nullptr),
                                                              grad + c * inner, static_cast<T*>(nullptr), inner, p,
                                                              Sums<true, T>{first + c, second + c});
        group_gradient(args, x, grad, weight, dx, begin_channel, last, group, first, second);
        for (int64_t c = begin_channel; c < last; ++c) {
            total[c] += first[c];
            total[args.channels + c] += second[c] * group.inverse;
        }
    });
}

template <class T>
void backward(const GroupNormArguments& args, int64_t begin, int64_t end, T* sums, void* scratch) {
    for (int64_t task = begin; task < end; ++task) {
        const Samples samples = samples_of(args, task);
        T* total = sums + task * 2 * args.channels;
        fill(total, 2 * args.channels, T(0));
        for (int64_t s = samples.first; s < samples.last; ++s)
            sample_gradient(args, s, total, static_cast<T*>(scratch));
    }
}

template <class T>
void forward_pixels(const GroupNormArguments& args, int64_t begin, int64_t end, void* scratch) {
    Pixels<T> pixels(args, scratch);
    const auto x_of = [&](int64_t s) { return at<T>(args.x, s * pixels.elements); };
    for (int64_t s = begin; s < end; ++s) {
        const int64_t parameter = s / args.batch * args.channels;
        pixels.then(s + 1 < end ? pixels.elements : 0);
        pixels.forward(x_of(s), at<T>(args.weight, parameter), at<T>(args.bias, parameter),
                       mutable_at<T>(args.y, s * pixels.elements));
    }
}

/// Blocks of tasks, the last first: it is what a forward pass has left in the caches. Within a block in the order of
/// memory, in which the processor fetches ahead.
template <class T>
void backward_pixels(const GroupNormArguments& args, int64_t begin, int64_t end, T* sums, void* scratch) {
    constexpr int64_t kBlockBytes = 512 * 1024;  // of x
    Pixels<T> pixels(args, scratch);
    const int64_t elements = pixels.elements, bytes = args.samples * elements * static_cast<int64_t>(sizeof(T));
    const int64_t step = std::max(kBlockBytes / std::max(bytes, int64_t{1}), int64_t{1});
    for (int64_t last = end; last > begin; last -= step) {
        const int64_t first = std::max(begin, last - step), block_before = std::max(begin, first - step);
        for (int64_t task = first; task < last; ++task) {
            const Samples samples = samples_of(args, task);
            T* total = sums + task * 2 * args.channels;
            fill(total, 2 * args.channels, T(0));
            const int64_t next = samples_of(args, task + 1 < last ? task + 1 : block_before).first;
            for (int64_t s = samples.first; s < samples.last; ++s) {
                pixels.then(((s + 1 < samples.last ? s + 1 : next) - s) * elements);
                pixels.backward(at<T>(args.x, s * elements), at<T>(args.grad, s * elements),
                                at<T>(args.weight, s / args.batch * args.channels),
                                mutable_at<T>(args.dx, s * elements), total);
            }
        }
    }
}

template <class T>
void forward_samples(const GroupNormArguments& args, int64_t begin, int64_t end, void* scratch) {
    args.columns > 0 ? forward_pixels<T>(args, begin, end, scratch) : forward<T>(args, begin, end);
}

template <class T>
void backward_samples(const GroupNormArguments& args, int64_t begin, int64_t end, T* sums, void* scratch) {
    args.columns > 0 ? backward_pixels(args, begin, end, sums, scratch) : backward(args, begin, end, sums, scratch);
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
