// SPDX-License-Identifier: MIT
// Batch norm with the residual and the activation that follow it. Of a contiguous tensor a block owns a channel; with the
// channels last it owns 32 of them and neighbouring threads have neighbouring channels. The variance is formed around
// the mean, in a second pass.
#include <type_traits>

#include "fused/kernels/device.cuh"
#include "fused/math/norm_activation.hpp"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kColumns = 32, kRows = 8, kThreads = kColumns * kRows;

__device__ int64_t values_of(const BatchNormArguments& args) { return args.rows.elements / args.channels; }

/// The values of one channel of one model, dealt out to the threads of a block.
struct Channel {
    int64_t model, channel, first, step, count;
    bool inside;

    __device__ Channel(const BatchNormArguments& args) {
        model = blockIdx.y;
        count = values_of(args);
        const bool last = args.inner == 1;
        channel = last ? static_cast<int64_t>(blockIdx.x) * kColumns + threadIdx.x : blockIdx.x;
        inside = channel < args.channels;
        first = last ? threadIdx.y : threadIdx.y * kColumns + threadIdx.x;
        step = last ? kRows : kThreads;
    }
    /// Element of the model that is value i of the channel.
    __device__ int64_t element(const BatchNormArguments& args, int64_t i) const {
        return (i / args.inner * args.channels + channel) * args.inner + i % args.inner;
    }
    __device__ int64_t parameter(const BatchNormArguments& args) const { return model * args.channels + channel; }
};

/// The sum over the threads that share the channel, in a fixed order; each of them gets it.
template <class A>
__device__ A channel_sum(bool last, A value) {
    if (!last) {
        __shared__ A lanes[kRows];
        value = warp_sum(value);
        __syncthreads();
        if (threadIdx.x == 0) lanes[threadIdx.y] = value;
        __syncthreads();
        A total = lanes[0];
        for (int i = 1; i < kRows; ++i) total += lanes[i];
        return total;
    }
    __shared__ A partial[kRows][kColumns];
    __syncthreads();
    partial[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    A total = partial[0][threadIdx.x];
    for (int i = 1; i < kRows; ++i) total += partial[i][threadIdx.x];
    return total;
}

template <class A>
__device__ A* statistic(const BatchNormArguments& args, int64_t which) {
    return static_cast<A*>(args.statistics) + which * args.rows.models * args.channels;
}

template <class T>
__device__ accumulated<T> parameter_at(const void* base, int64_t index, double absent) {
    return base == nullptr ? accumulated<T>(absent) : load(static_cast<const T*>(base), index);
}

template <class T>
__global__ void __launch_bounds__(kThreads) statistics_kernel(BatchNormArguments args) {
    using A = accumulated<T>;
    const Channel c(args);
    const T* x = static_cast<const T*>(args.x) + c.model * args.x_stride;
    const bool last = args.inner == 1;
    const A n = static_cast<A>(c.count > 0 ? c.count : 1);
    A mean = A(0), squares = A(0);
    if (args.training) {
        for (int64_t i = c.first; i < c.count && c.inside; i += c.step) mean += load(x, c.element(args, i));
        mean = channel_sum(last, mean) / n;
        for (int64_t i = c.first; i < c.count && c.inside; i += c.step) {
            const A d = load(x, c.element(args, i)) - mean;
            squares += d * d;
        }
        squares = channel_sum(last, squares);
    }
    if (!c.inside || threadIdx.y != 0 || (!last && threadIdx.x != 0)) return;
    const int64_t p = c.parameter(args);
    A variance = squares / n, unbiased = n > A(1) ? squares / (n - A(1)) : A(0);
    if (!args.training) {
        mean = load(static_cast<const T*>(args.given_mean), p);
        variance = unbiased = load(static_cast<const T*>(args.given_variance), p);
    }
    statistic<A>(args, 0)[p] = mean;
    statistic<A>(args, 1)[p] = A(1) / square_root(variance + static_cast<A>(args.eps));
    statistic<A>(args, 2)[p] = unbiased;
}

/// What an element needs of its channel.
template <class T>
struct Normal {
    using A = accumulated<T>;
    int64_t parameter;
    A inverse, weight, distance;  // distance: x - mean

    __device__ Normal(const BatchNormArguments& args, int64_t model, int64_t element) {
        parameter = model * args.channels + element / args.inner % args.channels;
        inverse = statistic<A>(args, 1)[parameter];
        weight = parameter_at<T>(args.weight, parameter, 1.0);
        distance =
            load(static_cast<const T*>(args.x), model * args.x_stride + element) - statistic<A>(args, 0)[parameter];
    }
    __device__ A before_activation(const BatchNormArguments& args, int64_t model, int64_t element) const {
        const A z = distance * (inverse * weight) + parameter_at<T>(args.bias, parameter, 0.0);
        return args.residual == nullptr
                   ? z
                   : z + load(static_cast<const T*>(args.residual), model * args.residual_stride + element);
    }
};

template <NormActivation kind, class T>
__global__ void __launch_bounds__(kThreads) apply_kernel(BatchNormArguments args) {
    const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, model = blockIdx.y;
    if (e >= args.rows.elements) return;
    const Normal<T> normal(args, model, e);
    const auto z = normal.before_activation(args, model, e);
    const auto y = norm_activate<kind>(z, static_cast<accumulated<T>>(args.slope));
    store(static_cast<T*>(args.y), model * args.rows.elements + e, y);
}

/// The gradient before the activation, which is also the residual's.
template <NormActivation kind, class T>
__device__ accumulated<T> inner_gradient(const BatchNormArguments& args, const Normal<T>& normal, int64_t model,
                                         int64_t e) {
    using A = accumulated<T>;
    const A g = load(static_cast<const T*>(args.grad), model * args.grad_stride + e);
    if (kind == NormActivation::kNone) return g;
    return g * norm_derivative<kind>(normal.before_activation(args, model, e), static_cast<A>(args.slope));
}

template <NormActivation kind, class T>
__global__ void __launch_bounds__(kThreads) sums_kernel(BatchNormArguments args, accumulated<T>* sums) {
    using A = accumulated<T>;
    const Channel c(args);
    A bias = A(0), weight = A(0);
    for (int64_t i = c.first; i < c.count && c.inside; i += c.step) {
        const int64_t e = c.element(args, i);
        const Normal<T> normal(args, c.model, e);
        const A g = inner_gradient<kind>(args, normal, c.model, e);
        if (args.residual != nullptr) store(static_cast<T*>(args.dresidual), c.model * args.rows.elements + e, g);
        bias += g;
        weight += g * normal.distance * normal.inverse;
    }
    const bool last = args.inner == 1;
    bias = channel_sum(last, bias);
    weight = channel_sum(last, weight);
    if (!c.inside || threadIdx.y != 0 || (!last && threadIdx.x != 0)) return;
    const int64_t p = c.parameter(args);
    store(static_cast<T*>(args.dbias), p, bias);
    store(static_cast<T*>(args.dweight), p, weight);
    sums[2 * p] = bias;
    sums[2 * p + 1] = weight;
}

template <NormActivation kind, class T>
__global__ void __launch_bounds__(kThreads) gradient_kernel(BatchNormArguments args, const accumulated<T>* sums) {
    using A = accumulated<T>;
    const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, model = blockIdx.y;
    if (e >= args.rows.elements) return;
    const Normal<T> normal(args, model, e);
    A g = inner_gradient<kind>(args, normal, model, e);
    if (args.training) {
        const A* own = sums + 2 * normal.parameter;
        const A n = static_cast<A>(values_of(args));
        g -= (own[0] + normal.distance * normal.inverse * own[1]) / n;
    }
    store(static_cast<T*>(args.dx), model * args.rows.elements + e, g * normal.inverse * normal.weight);
}

template <class Function>
void by_kind(NormActivation kind, const Function& function) {
    using A = NormActivation;
    switch (kind) {
        case A::kNone: return function(std::integral_constant<A, A::kNone>());
        case A::kRelu: return function(std::integral_constant<A, A::kRelu>());
        case A::kRelu6: return function(std::integral_constant<A, A::kRelu6>());
        case A::kLeakyRelu: return function(std::integral_constant<A, A::kLeakyRelu>());
        case A::kHardswish: return function(std::integral_constant<A, A::kHardswish>());
        case A::kSilu: return function(std::integral_constant<A, A::kSilu>());
    }
}

dim3 channel_grid(const BatchNormArguments& args) {
    return dim3(blocks_for(args.channels, args.inner == 1 ? kColumns : 1), static_cast<unsigned>(args.rows.models));
}
dim3 element_grid(const BatchNormArguments& args) {
    return dim3(blocks_for(args.rows.elements, kThreads), static_cast<unsigned>(args.rows.models));
}

}  // namespace

cudaError_t batch_norm_forward(const BatchNormArguments& args, cudaStream_t stream) {
    if (args.rows.models * args.channels == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        statistics_kernel<T><<<channel_grid(args), dim3(kColumns, kRows), 0, stream>>>(args);
        if (args.rows.elements == 0) return;
        by_kind(args.activation, [&](auto kind) {
            apply_kernel<decltype(kind)::value, T><<<element_grid(args), kThreads, 0, stream>>>(args);
        });
    });
}

cudaError_t batch_norm_backward(const BatchNormArguments& args, void* sums, cudaStream_t stream) {
    if (args.rows.models * args.channels == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        by_kind(args.activation, [&](auto kind) {
            constexpr NormActivation k = decltype(kind)::value;
            auto* room = static_cast<accumulated<T>*>(sums);
            sums_kernel<k, T><<<channel_grid(args), dim3(kColumns, kRows), 0, stream>>>(args, room);
            if (args.rows.elements == 0) return;
            gradient_kernel<k, T><<<element_grid(args), kThreads, 0, stream>>>(args, room);
        });
    });
}

}  // namespace dnnsuite::fused::kernels
