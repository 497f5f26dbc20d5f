// SPDX-License-Identifier: MIT
// Batch norm with the residual and the activation that follow it. Of a contiguous tensor a block owns a channel; with the
// channels last it owns 32 of them and neighbouring threads have neighbouring channels. The variance is formed around
// the mean, in a second pass. The models' samples may lie side by side, as a convolution in groups leaves them.
#include <type_traits>

#include "fused/kernels/pack.cuh"
#include "fused/math/norm_activation.hpp"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kColumns = 32, kRows = 8, kThreads = kColumns * kRows;

__device__ int64_t values_of(const BatchNormArguments& args) { return quotient(args.rows.elements, args.channels); }

/// Place of element e of a model in an array whose units are `step` apart.
__device__ int64_t place_of(const BatchNormArguments& args, int64_t e, int64_t step) {
    return step == args.unit() ? e : e + quotient(e, args.unit()) * (step - args.unit());
}

/// Number of neighbours of a contiguous channel are taken together: a pack where planes are whole packs.
template <class T>
__device__ int unit_of(const BatchNormArguments& args) {
    return args.inner > 1 && args.inner % kPack<T> == 0 ? kPack<T> : 1;
}

/// The values of one channel of one model, dealt out to the threads of a block by units.
template <class T>
struct Channel {
    int64_t model, channel, first, step, units;
    int unit;
    bool inside;

    __device__ Channel(const BatchNormArguments& args) {
        model = blockIdx.y;
        unit = unit_of<T>(args);
        units = quotient(values_of(args), unit);
        const bool last = args.inner == 1;
        channel = last ? static_cast<int64_t>(blockIdx.x) * kColumns + threadIdx.x : blockIdx.x;
        inside = channel < args.channels;
        first = last ? threadIdx.y : threadIdx.y * kColumns + threadIdx.x;
        step = last ? kRows : kThreads;
        if (!inside) units = 0;
    }
    /// Element of the model that is the first of unit i of the channel.
    __device__ int64_t element(const BatchNormArguments& args, int64_t i) const {
        const int64_t value = i * unit;
        const int64_t plane = quotient(value, args.inner);
        return (plane * (args.channels - 1) + channel) * args.inner + value;
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
__device__ accumulated<T> parameter_at(const BatchNormArguments& args, const void* base, int64_t index, double absent) {
    using A = accumulated<T>;
    if (base == nullptr) return A(absent);
    return args.wide_parameters ? static_cast<const A*>(base)[index] : load(static_cast<const T*>(base), index);
}
template <class T>
__device__ void store_parameter(const BatchNormArguments& args, void* base, int64_t index, accumulated<T> value) {
    if (args.wide_parameters)
        static_cast<accumulated<T>*>(base)[index] = value;
    else
        store(static_cast<T*>(base), index, value);
}

template <class T>
__global__ void __launch_bounds__(kThreads) statistics_kernel(BatchNormArguments args, bool whole) {
    using A = accumulated<T>;
    const Channel<T> c(args);
    const T* x = static_cast<const T*>(args.x) + c.model * args.x_stride;
    const bool last = args.inner == 1;
    const A n = static_cast<A>(values_of(args) > 0 ? values_of(args) : 1);
    const auto unit_at = [&](int64_t i) {
        const int64_t e = place_of(args, c.element(args, i), args.x_step);
        return load_pack(x, e, e + c.unit, whole && c.unit > 1);
    };
    A mean = A(0), squares = A(0);
    if (args.training) {
        for (int64_t i = c.first; i < c.units; i += c.step) {
            const Values<T> v = unit_at(i);
            DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) mean += v[j];
        }
        mean = channel_sum(last, mean) / n;
        for (int64_t i = c.first; i < c.units; i += c.step) {
            const Values<T> v = unit_at(i);
            DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
                const A d = j < c.unit ? v[j] - mean : A(0);
                squares += d * d;
            }
        }
        squares = channel_sum(last, squares);
    }
    if (!c.inside || threadIdx.y != 0 || (!last && threadIdx.x != 0)) return;
    if (args.tracked != nullptr && c.channel == 0) ++args.tracked[c.model];
    const int64_t p = c.parameter(args);
    A variance = squares / n, unbiased = n > A(1) ? squares / (n - A(1)) : A(0);
    if (!args.training) {
        mean = parameter_at<T>(args, args.given_mean, p, 0.0);
        variance = unbiased = parameter_at<T>(args, args.given_variance, p, 1.0);
    }
    if (args.running_mean != nullptr) {
        A *running_mean = static_cast<A*>(args.running_mean),
          *running_variance = static_cast<A*>(args.running_variance);
        running_mean[p] = running_average(running_mean[p], mean, static_cast<A>(args.momentum));
        running_variance[p] = running_average(running_variance[p], unbiased, static_cast<A>(args.momentum));
    }
    statistic<A>(args, 0)[p] = mean;
    statistic<A>(args, 1)[p] = A(1) / square_root(variance + static_cast<A>(args.eps));
    statistic<A>(args, 2)[p] = unbiased;
}

/// A model's elements e, e + 1, ... `count` of them, in one channel or in neighbouring ones, and what they need of it.
template <class T>
struct Normal {
    using A = accumulated<T>;
    int64_t model, element, parameter, next;  // next: from element to element the parameter moves by it
    int count;
    bool whole;
    Values<T> inverse, weight, distance;  // distance: x - mean

    __device__ Normal(const BatchNormArguments& args, int64_t model_in, int64_t e, int count_in, bool in_packs)
        : model(model_in), element(e), next(args.inner == 1 ? 1 : 0), count(count_in), whole(in_packs) {
        const int64_t plane = quotient(element, args.inner);
        parameter = model * args.channels + plane - quotient(plane, args.channels) * args.channels;
        distance = of_model(args, args.x, args.x_stride, args.x_step);
        inverse = of_channels(statistic<A>(args, 1), 1.0);
        weight = of_parameters(args, args.weight, 1.0);
        const Values<T> mean = of_channels(statistic<A>(args, 0), 0.0);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) distance[j] -= mean[j];
    }
    __device__ Values<T> of_channels(const A* base, double absent) const {
        Values<T> v;
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) v[j] =
            j < count ? base[parameter + j * next] : static_cast<A>(absent);
        return v;
    }
    __device__ Values<T> of_parameters(const BatchNormArguments& args, const void* base, double absent) const {
        Values<T> v;
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) v[j] =
            j < count ? parameter_at<T>(args, base, parameter + j * next, absent) : static_cast<A>(absent);
        return v;
    }
    __device__ Values<T> of_model(const BatchNormArguments& args, const void* base, int64_t stride,
                                  int64_t step) const {
        const int64_t at = place_of(args, element, step);
        return load_pack(static_cast<const T*>(base) + model * stride, at, at + count, whole);
    }
    __device__ void write(const BatchNormArguments& args, void* base, const Values<T>& v) const {
        const int64_t at = place_of(args, element, args.out_step);
        store_pack(static_cast<T*>(base) + model * args.out_stride, at, at + count, whole, v);
    }
    __device__ Values<T> before_activation(const BatchNormArguments& args) const {
        Values<T> z = of_parameters(args, args.bias, 0.0);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) z[j] += distance[j] * (inverse[j] * weight[j]);
        if (args.residual == nullptr) return z;
        const Values<T> residual = of_model(args, args.residual, args.residual_stride, args.residual_step);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) z[j] += residual[j];
        return z;
    }
};

/// function(constant of the activation): chosen in the kernel, all threads alike, so that there are not six kernels of each.
template <class Function>
__device__ __forceinline__ void by_kind(NormActivation kind, const Function& function) {
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

/// The element that a thread of a kernel over all elements begins with. `whole`: it has a pack of them, else one.
template <class T>
__device__ int64_t element_of_thread(bool whole) {
    return (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * (whole ? kPack<T> : 1);
}

template <class T>
__global__ void __launch_bounds__(kThreads) apply_kernel(BatchNormArguments args, bool whole) {
    const int64_t e = element_of_thread<T>(whole);
    if (e >= args.rows.elements) return;
    const Normal<T> normal(args, blockIdx.y, e, whole ? kPack<T> : 1, whole);
    Values<T> y = normal.before_activation(args);
    by_kind(args.activation, [&](auto kind) {
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) y[j] =
            norm_activate<decltype(kind)::value>(y[j], static_cast<accumulated<T>>(args.slope));
    });
    normal.write(args, args.y, y);
}

/// The gradient before the activation, which is also the residual's.
template <class T>
__device__ Values<T> inner_gradient(const BatchNormArguments& args, const Normal<T>& normal) {
    Values<T> g = normal.of_model(args, args.grad, args.grad_stride, args.grad_step);
    if (args.activation == NormActivation::kNone) return g;
    const Values<T> z = normal.before_activation(args);
    by_kind(args.activation, [&](auto kind) {
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) g[j] *=
            norm_derivative<decltype(kind)::value>(z[j], static_cast<accumulated<T>>(args.slope));
    });
    return g;
}

template <class T>
__global__ void __launch_bounds__(kThreads) sums_kernel(BatchNormArguments args, accumulated<T>* sums, bool whole) {
    using A = accumulated<T>;
    const Channel<T> c(args);
    A bias = A(0), weight = A(0);
    for (int64_t i = c.first; i < c.units; i += c.step) {
        const Normal<T> normal(args, c.model, c.element(args, i), c.unit, whole && c.unit > 1);
        const Values<T> g = inner_gradient(args, normal);
        if (args.residual != nullptr) normal.write(args, args.dresidual, g);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
            bias += g[j];
            weight += g[j] * normal.distance[j] * normal.inverse[j];
        }
    }
    const bool last = args.inner == 1;
    bias = channel_sum(last, bias);
    weight = channel_sum(last, weight);
    if (!c.inside || threadIdx.y != 0 || (!last && threadIdx.x != 0)) return;
    const int64_t p = c.parameter(args);
    store_parameter<T>(args, args.dbias, p, bias);
    store_parameter<T>(args, args.dweight, p, weight);
    sums[2 * p] = bias;
    sums[2 * p + 1] = weight;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(BatchNormArguments args, const accumulated<T>* sums, bool whole) {
    using A = accumulated<T>;
    const int64_t e = element_of_thread<T>(whole);
    if (e >= args.rows.elements) return;
    const Normal<T> normal(args, blockIdx.y, e, whole ? kPack<T> : 1, whole);
    const A n = static_cast<A>(values_of(args));
    Values<T> g = inner_gradient(args, normal);
    DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
        if (j >= normal.count) break;
        const A* own = sums + 2 * (normal.parameter + j * normal.next);
        if (args.training) g[j] -= (own[0] + normal.distance[j] * normal.inverse[j] * own[1]) / n;
        g[j] *= normal.inverse[j] * normal.weight[j];
    }
    normal.write(args, args.dx, g);
}

dim3 channel_grid(const BatchNormArguments& args) {
    return dim3(blocks_for(args.channels, args.inner == 1 ? kColumns : 1), static_cast<unsigned>(args.rows.models));
}
/// True if every pack of elements lies on a boundary and in one channel, or in neighbouring ones.
template <class T>
bool whole_of(const BatchNormArguments& a) {
    bool strides = true;
    for (const int64_t stride : {a.x_stride, a.residual_stride, a.grad_stride, a.out_stride, a.x_step, a.residual_step,
                                 a.grad_step, a.out_step})
        strides = strides && stride % kPack<T> == 0;
    return strides && in_packs<T>(a.inner == 1 ? a.channels : a.inner,
                                  {a.x, a.residual, a.grad, a.y, a.dx, a.residual == nullptr ? nullptr : a.dresidual});
}
template <class T>
dim3 element_grid(const BatchNormArguments& args, bool whole) {
    return dim3(blocks_for(args.rows.elements / (whole ? kPack<T> : 1), kThreads),
                static_cast<unsigned>(args.rows.models));
}

}  // namespace

cudaError_t batch_norm_forward(const BatchNormArguments& args, cudaStream_t stream) {
    if (args.rows.models * args.channels == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        const bool whole = whole_of<T>(args);
        launch(statistics_kernel<T>, channel_grid(args), dim3(kColumns, kRows), 0, stream, args, whole);
        if (args.rows.elements == 0 || args.y == nullptr) return;
        launch(apply_kernel<T>, element_grid<T>(args, whole), kThreads, 0, stream, args, whole);
    });
}

cudaError_t batch_norm_backward(const BatchNormArguments& args, void* sums, cudaStream_t stream) {
    if (args.rows.models * args.channels == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        const bool whole = whole_of<T>(args);
        auto* room = static_cast<accumulated<T>*>(sums);
        launch(sums_kernel<T>, channel_grid(args), dim3(kColumns, kRows), 0, stream, args, room, whole);
        if (args.rows.elements == 0) return;
        launch(gradient_kernel<T>, element_grid<T>(args, whole), kThreads, 0, stream, args, room, whole);
    });
}

}  // namespace dnnsuite::fused::kernels
