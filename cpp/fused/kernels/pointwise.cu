// SPDX-License-Identifier: MIT
// Bias, activation, dropout and residual in one pass. A call of the generator decides over eight elements, 16 apart; a
// thread makes the calls of a pack of neighbours, so it has eight packs.
#include <type_traits>

#include "fused/kernels/row.cuh"
#include "fused/math/activation.hpp"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 8;  // of a thread, 16 elements apart
/// Blocks that have to fit an SM: without it some types take a few registers more than that leaves.
template <class T>
constexpr int kForwardBlocks = sizeof(T) == 2 ? 3 : 5;
template <class T>
constexpr int kBackwardBlocks = sizeof(T) == 2 ? 3 : 4;

/// The factors of generator calls c, c + 1, ... of a model, a pack of them.
template <class T>
struct Factors {
    uint32_t word[kPack<T>][4];
    uint32_t threshold = 0;
    float scale = 1.0f;

    __device__ Factors(const DropoutArguments& dropout, int64_t model, uint64_t c) : word{} {
        if (dropout.p == nullptr) return;
        const DropoutRule rule = dropout_rule(dropout, model);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
            word[j][0] = static_cast<uint32_t>(c + j);
            word[j][1] = static_cast<uint32_t>((c + j) >> 32);
            word[j][2] = rule.step0;
            word[j][3] = rule.step1;
            philox4x32<kDropoutRounds>(word[j], rule.key0, rule.key1);
        }
        threshold = rule.threshold;
        scale = rule.scale;
    }
    /// Of element j of pack k.
    __device__ accumulated<T> operator()(int k, int j) const {
        const uint32_t bits = k % 2 == 0 ? word[j][k / 2] & 0xFFFFu : word[j][k / 2] >> 16;
        return static_cast<accumulated<T>>(bits < threshold ? 0.0f : scale);
    }
};

/// Places of a thread's packs.
template <class T>
struct Packs {
    int64_t model, call, begin, base;

    __device__ explicit Packs(const Rows& rows) {
        model = blockIdx.y;
        call = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack<T>;
        begin = call / 16 * kDropoutBlock + call % 16;
        base = model * rows.elements;
    }
};

/// Columns of a thread's packs, one after the other: the only division is that of the first.
struct PackColumn {
    int64_t columns, step, column;

    __device__ PackColumn(const Rows& rows, int64_t begin)
        : columns(rows.columns), step(columns > 16 ? 16 : 16 % static_cast<int>(columns)),
          column(begin - quotient(begin, columns) * columns) {}
    __device__ void advance() {
        column += step;
        if (column >= columns) column -= columns;
    }
};

/// x + bias of the pack at element e of the model.
template <class T>
__device__ __forceinline__ Values<T> input_pack(const PointwiseArguments& args, const Packs<T>& at, int64_t e,
                                                int64_t column, bool whole) {
    const int64_t columns = args.rows.columns;
    Values<T> v = load_pack(static_cast<const T*>(args.x) + at.base, e, args.rows.elements, whole);
    if (args.bias == nullptr) return v;
    const T* bias = static_cast<const T*>(args.bias) + at.model * columns;
    if (whole) {
        const Values<T> own = load_pack(bias, column, columns, true);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) v[j] += own[j];
    } else {
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
            v[j] += load(bias, column);
            column = column + 1 < columns ? column + 1 : 0;
        }
    }
    return v;
}

template <Activation kind, class T>
__global__ void __launch_bounds__(kThreads, kForwardBlocks<T>) forward_kernel(PointwiseArguments args, bool whole) {
    const Packs<T> at(args.rows);
    const int64_t elements = args.rows.elements;
    if (at.begin >= elements) return;
    const Factors<T> factors(args.dropout, at.model, static_cast<uint64_t>(at.call));
    PackColumn at_bias(args.rows, at.begin);
    DNNSUITE_UNROLL for (int k = 0; k < kPacks; ++k, at_bias.advance()) {
        const int64_t e = at.begin + 16 * k;
        if (e >= elements) break;
        Values<T> v = input_pack(args, at, e, at_bias.column, whole);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) v[j] = activate<kind>(v[j]) * factors(k, j);
        if (args.residual != nullptr) {
            const Values<T> residual = load_pack(static_cast<const T*>(args.residual) + at.base, e, elements, whole);
            DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) v[j] += residual[j];
        }
        store_pack(static_cast<T*>(args.y) + at.base, e, elements, whole, v);
    }
}

template <Activation kind, class T>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks<T>) backward_kernel(PointwiseArguments args, bool whole) {
    const Packs<T> at(args.rows);
    const int64_t elements = args.rows.elements;
    if (at.begin >= elements) return;
    const Factors<T> factors(args.dropout, at.model, static_cast<uint64_t>(at.call));
    PackColumn at_bias(args.rows, at.begin);
    DNNSUITE_UNROLL for (int k = 0; k < kPacks; ++k, at_bias.advance()) {
        const int64_t e = at.begin + 16 * k;
        if (e >= elements) break;
        Values<T> g = load_pack(static_cast<const T*>(args.grad) + at.base, e, elements, whole);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) g[j] *= factors(k, j);
        if (kind != Activation::kNone) {
            const Values<T> input = input_pack(args, at, e, at_bias.column, whole);
            DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) g[j] *= activation_derivative<kind>(input[j]);
        }
        store_pack(static_cast<T*>(args.y) + at.base, e, elements, whole, g);
    }
}

/// Sums of dx over a task's rows.
template <class T>
__global__ void __launch_bounds__(kSumColumns* kSumRows) bias_sums_kernel(PointwiseArguments args) {
    const Rows& rows = args.rows;
    const ColumnTask at(rows);
    accumulated<T> total(0);
    for (int64_t r = at.first; r < at.last; r += kSumRows)
        total += load(static_cast<const T*>(args.y), (at.model * rows.rows + r) * rows.columns + at.column);
    write_column_sum(args.bias_sums, at.place, total);
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_kernel(const accumulated<T>* sums, T* total, Rows rows) {
    using A = accumulated<T>;
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= rows.models * rows.columns) return;
    const int64_t model = quotient(i, rows.columns), column = i - model * rows.columns;
    A value = A(0);
    for (int64_t task = 0; task < rows.tasks_per_model; ++task)
        value += sums[(model * rows.tasks_per_model + task) * rows.columns + column];
    store(total, i, value);
}

template <class T>
dim3 grid_of(const Rows& rows) {
    const int64_t calls = (rows.elements + kDropoutBlock - 1) / kDropoutBlock * 16;
    return dim3(blocks_for(calls / kPack<T>, kThreads), static_cast<unsigned>(rows.models));
}

template <class T>
bool whole_of(const PointwiseArguments& args) {
    return in_packs<T>(args.bias == nullptr ? args.rows.elements : args.rows.columns,
                       {args.x, args.bias, args.residual, args.grad, args.y});
}

template <class Function>
void by_activation(Activation kind, const Function& function) {
    using A = Activation;
    switch (kind) {
        case A::kNone: return function(std::integral_constant<A, A::kNone>());
        case A::kRelu: return function(std::integral_constant<A, A::kRelu>());
        case A::kGelu: return function(std::integral_constant<A, A::kGelu>());
    }
}

}  // namespace

cudaError_t pointwise_forward(const PointwiseArguments& args, cudaStream_t stream) {
    if (args.rows.models * args.rows.elements == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        by_activation(args.activation, [&](auto kind) {
            launch(forward_kernel<decltype(kind)::value, T>, grid_of<T>(args.rows), kThreads, 0, stream, args,
                   whole_of<T>(args));
        });
    });
}

cudaError_t pointwise_backward(const PointwiseArguments& args, cudaStream_t stream) {
    const Rows& rows = args.rows;
    if (rows.models == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        if (rows.elements > 0)
            by_activation(args.activation, [&](auto kind) {
                launch(backward_kernel<decltype(kind)::value, T>, grid_of<T>(rows), kThreads, 0, stream, args,
                       whole_of<T>(args));
            });
        if (args.bias_sums != nullptr)
            launch(bias_sums_kernel<T>, column_grid(rows), dim3(kSumColumns, kSumRows), 0, stream, args);
    });
}

cudaError_t add_task_sums(const void* sums, void* total, const Rows& rows, DType dtype, cudaStream_t stream) {
    const unsigned blocks = blocks_for(rows.models * rows.columns, kThreads);
    if (blocks == 0) return cudaSuccess;
    return by_dtype(dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        launch(add_kernel<T>, blocks, kThreads, 0, stream, static_cast<const accumulated<T>*>(sums),
               static_cast<T*>(total), rows);
    });
}

}  // namespace dnnsuite::fused::kernels
