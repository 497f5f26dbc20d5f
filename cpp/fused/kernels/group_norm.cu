// SPDX-License-Identifier: MIT
// Group norm. A block owns a group of a sample, whose channels lie one after the other; the variance is formed around
// the mean, in a second pass. The parameters' gradients are those of a block per channel, over the samples in order.
#include "fused/kernels/pack.cuh"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kThreads = 256;

/// The group of a block: `count` elements from `first` on.
struct Place {
    int64_t model, index, channel, first, count;  // index: among all groups; channel: its first one

    __device__ explicit Place(const GroupNormArguments& args) {
        const int64_t channels = quotient(args.channels, args.groups);
        index = blockIdx.x;
        const int64_t sample = quotient(index, args.groups);
        model = quotient(sample, args.batch);
        channel = (index - sample * args.groups) * channels;
        count = channels * args.inner;
        first = index * count;
    }
};

template <class T>
struct Statistics {
    using A = accumulated<T>;
    A mean, inverse;

    __device__ Statistics(const GroupNormArguments& args, const Place& at, bool whole) {
        const T* x = static_cast<const T*>(args.x) + at.first;
        A total = A(0), squares = A(0);
        for_each_pack<T>(kThreads, at.count, [&](int64_t i) {
            const Values<T> v = load_pack(x, i, at.count, whole);
            DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) total += v[j];
        });
        mean = block_reduce<kThreads, false>(total) / static_cast<A>(at.count);
        for_each_pack<T>(kThreads, at.count, [&](int64_t i) {
            const Values<T> v = load_pack(x, i, at.count, whole);
            DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) squares +=
                i + j < at.count ? (v[j] - mean) * (v[j] - mean) : A(0);
        });
        const A variance = block_reduce<kThreads, false>(squares) / static_cast<A>(at.count);
        inverse = A(1) / square_root(variance + static_cast<A>(args.eps));
    }
};

/// A parameter [B, C] of the elements of a pack.
template <class T>
__device__ Values<T> parameter_pack(const GroupNormArguments& args, const Place& at, const void* base, int64_t i,
                                    double absent) {
    if (base == nullptr) return load_pack_or<T>(nullptr, 0, 0, true, absent);
    const T* own = static_cast<const T*>(base) + at.model * args.channels + at.channel;
    int64_t channel = quotient(i, args.inner), within = i - channel * args.inner;
    Values<T> v;
    if (args.inner % kPack<T> == 0) {  // the whole pack is of one channel
        const accumulated<T> value = load(own, channel);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) v[j] = value;
        return v;
    }
    DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
        v[j] = i + j < at.count ? load(own, channel) : accumulated<T>(0);
        if (++within < args.inner) continue;
        within = 0;
        ++channel;
    }
    return v;
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(GroupNormArguments args, bool whole) {
    const Place at(args);
    const Statistics<T> s(args, at, whole);
    for_each_pack<T>(kThreads, at.count, [&](int64_t i) {
        Values<T> v = load_pack(static_cast<const T*>(args.x) + at.first, i, at.count, whole);
        const Values<T> weight = parameter_pack<T>(args, at, args.weight, i, 1.0);
        const Values<T> bias = parameter_pack<T>(args, at, args.bias, i, 0.0);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) v[j] = (v[j] - s.mean) * (s.inverse * weight[j]) + bias[j];
        store_pack(static_cast<T*>(args.y) + at.first, i, at.count, whole, v);
    });
}

/// dx of a group; its mean and 1 / deviation are kept for the sums.
template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(GroupNormArguments args, accumulated<T>* statistics, bool whole) {
    using A = accumulated<T>;
    const Place at(args);
    const Statistics<T> s(args, at, whole);
    const T *x = static_cast<const T*>(args.x) + at.first, *grad = static_cast<const T*>(args.grad) + at.first;
    const auto weighted = [&](int64_t i) {
        Values<T> g = load_pack(grad, i, at.count, whole);
        const Values<T> weight = parameter_pack<T>(args, at, args.weight, i, 1.0);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) g[j] *= weight[j];
        return g;
    };
    A sum_g = A(0), sum_gn = A(0);
    for_each_pack<T>(kThreads, at.count, [&](int64_t i) {
        const Values<T> g = weighted(i), v = load_pack(x, i, at.count, whole);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
            sum_g += g[j];
            sum_gn += g[j] * (v[j] - s.mean);
        }
    });
    const A n = static_cast<A>(at.count), level = block_reduce<kThreads, false>(sum_g) / n;
    const A curve = block_reduce<kThreads, false>(sum_gn) / n * s.inverse * s.inverse;
    for_each_pack<T>(kThreads, at.count, [&](int64_t i) {
        Values<T> g = weighted(i);
        const Values<T> v = load_pack(x, i, at.count, whole);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) g[j] = (g[j] - level - (v[j] - s.mean) * curve) * s.inverse;
        store_pack(static_cast<T*>(args.dx) + at.first, i, at.count, whole, g);
    });
    if (threadIdx.x != 0) return;
    statistics[2 * at.index] = s.mean;
    statistics[2 * at.index + 1] = s.inverse;
}

/// A channel's dweight and dbias. `whole`: its elements are whole packs.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sums_kernel(GroupNormArguments args, const accumulated<T>* statistics, bool whole) {
    using A = accumulated<T>;
    const int64_t channel = blockIdx.x, model = blockIdx.y,
                  group = quotient(channel, quotient(args.channels, args.groups));
    A weight = A(0), bias = A(0);
    for (int64_t n = 0; n < args.batch; ++n) {
        const int64_t sample = model * args.batch + n, first = (sample * args.channels + channel) * args.inner;
        const A* s = statistics + 2 * (sample * args.groups + group);
        for_each_pack<T>(kThreads, args.inner, [&](int64_t i) {
            const Values<T> g = load_pack(static_cast<const T*>(args.grad) + first, i, args.inner, whole);
            const Values<T> v = load_pack(static_cast<const T*>(args.x) + first, i, args.inner, whole);
            DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
                bias += g[j];
                weight += g[j] * (v[j] - s[0]) * s[1];
            }
        });
    }
    weight = block_reduce<kThreads, false>(weight);
    bias = block_reduce<kThreads, false>(bias);
    if (threadIdx.x != 0) return;
    store(static_cast<T*>(args.dweight), model * args.channels + channel, weight);
    store(static_cast<T*>(args.dbias), model * args.channels + channel, bias);
}

template <class T>
bool whole_of(const GroupNormArguments& args, int64_t columns) {
    return in_packs<T>(columns, {args.x, args.grad, args.y, args.dx});
}

int64_t groups_of(const GroupNormArguments& args) {
    return args.channels == 0 ? 0 : args.models * args.batch * args.groups;
}
int64_t group_size(const GroupNormArguments& args) { return args.channels / args.groups * args.inner; }

}  // namespace

cudaError_t group_norm_forward(const GroupNormArguments& args, cudaStream_t stream) {
    const int64_t groups = groups_of(args);
    if (groups == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        const bool whole = whole_of<T>(args, group_size(args));
        launch(forward_kernel<T>, static_cast<unsigned>(groups), kThreads, 0, stream, args, whole);
    });
}

cudaError_t group_norm_backward(const GroupNormArguments& args, void* statistics, cudaStream_t stream) {
    if (args.models * args.channels == 0) return cudaSuccess;
    const int64_t groups = groups_of(args);
    const dim3 channels(static_cast<unsigned>(args.channels), static_cast<unsigned>(args.models));
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        auto* room = static_cast<accumulated<T>*>(statistics);
        if (groups > 0) {
            const bool whole = whole_of<T>(args, group_size(args));
            launch(backward_kernel<T>, static_cast<unsigned>(groups), kThreads, 0, stream, args, room, whole);
        }
        launch(sums_kernel<T>, channels, kThreads, 0, stream, args, room, whole_of<T>(args, args.inner));
    });
}

}  // namespace dnnsuite::fused::kernels
