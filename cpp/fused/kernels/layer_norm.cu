// SPDX-License-Identifier: MIT
// Layer norm, plain or of residual + dropout(x + bias). A warp owns a row and keeps it in shared memory, and the bits of
// its dropout beside it; the backward pass leaves the bits to the sums.
#include "fused/kernels/row.cuh"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kThreads = kMaxWarps * kWarp;
constexpr int64_t kStatistics = 2;  // of a row: mean, 1 / deviation

/// The dropout of a row of `columns`.
template <class T>
class RowDropout {
  public:
    using A = accumulated<T>;

    __device__ RowDropout(const DropoutArguments& all, int64_t model, int64_t first, int64_t columns, bool keep)
        : begin_(mask_offset(first)) {
        if (all.p == nullptr) return;
        const DropoutRule rule = dropout_rule(all, model);
        scale_ = static_cast<A>(rule.scale);
        auto* masks = reinterpret_cast<uint32_t*>(Kept<T>::end(keep, columns));
        room_ = masks + threadIdx.y * static_cast<unsigned>(mask_words(columns));
        draw_mask(rule, first, columns, room_);
        __syncwarp();
    }
    /// Multiplies the pack at column i by its factors, if there are any.
    __device__ void apply(int64_t i, Values<T>& v) const {
        if (room_ == nullptr) return;
        const uint32_t bits = mask_bits(room_, begin_ + static_cast<unsigned>(i));
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) v[j] *= (bits >> j & 1) != 0 ? scale_ : A(0);
    }
    /// Leaves the bits to other kernels, if there are any.
    __device__ void write(int64_t columns, uint32_t* to) const {
        if (room_ == nullptr) return;
        const unsigned words = (begin_ + static_cast<unsigned>(columns) + 31) / 32;
        for (unsigned w = threadIdx.x; w < words; w += kWarp) to[w] = room_[w];
    }

  private:
    unsigned begin_;
    A scale_ = A(0);
    uint32_t* room_ = nullptr;
};

/// One row, what is normalised of it, and its statistics.
template <class T>
struct LayerRow {
    using A = accumulated<T>;
    const LayerNormArguments& args;
    int64_t columns, model, first, parameter;  // first: index of its first element
    bool whole;
    Kept<T> kept;
    RowDropout<T> dropout;
    A mean, inverse_deviation;

    __device__ LayerRow(const LayerNormArguments& all, int64_t index, bool keep, bool in_packs)
        : args(all), columns(all.rows.columns), model(quotient(index, all.rows.rows)), first(index * columns),
          parameter(model * columns), whole(in_packs), kept(keep, columns),
          dropout(all.dropout, model, first - model * all.rows.rows * columns, columns, keep) {
        A total = A(0), squares = A(0);
        for_each_pack<T>(kWarp, columns, [&](int64_t i) {
            const Values<T> s = read(i);
            kept.put(i, s);
            DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) total += i + j < columns ? s[j] : A(0);
        });
        mean = warp_sum(total) / static_cast<A>(columns);
        for_each_pack<T>(kWarp, columns, [&](int64_t i) {
            const Values<T> s = value(i);
            DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
                const A d = i + j < columns ? s[j] - mean : A(0);
                squares += d * d;
            }
        });
        const A variance = warp_sum(squares) / static_cast<A>(columns);
        inverse_deviation = A(1) / square_root(variance + static_cast<A>(args.eps));
    }

    __device__ Values<T> of_row(const void* base, int64_t i) const {
        return load_pack(static_cast<const T*>(base) + first, i, columns, whole);
    }
    __device__ Values<T> of_model(const void* base, int64_t i, double absent) const {
        return load_pack_or<T>(base, parameter + i, parameter + columns, whole, absent);
    }
    /// Input of the normalisation.
    __device__ Values<T> read(int64_t i) const {
        Values<T> s = of_row(args.x, i);
        if (args.residual == nullptr) return s;
        const Values<T> bias = of_model(args.bias, i, 0.0), residual = of_row(args.residual, i);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) s[j] += bias[j];
        dropout.apply(i, s);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) s[j] += residual[j];
        return s;
    }
    __device__ Values<T> value(int64_t i) const {
        return kept.get(i, [&](int64_t at) { return read(at); });
    }
    __device__ Values<T> normal(int64_t i) const {
        Values<T> s = value(i);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) s[j] = (s[j] - mean) * inverse_deviation;
        return s;
    }
    __device__ void write(void* base, int64_t i, const Values<T>& v) const {
        store_pack(static_cast<T*>(base) + first, i, columns, whole, v);
    }
};

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(LayerNormArguments args, bool keep, bool whole) {
    const int64_t index = row_of_warp();
    if (index >= args.rows.models * args.rows.rows) return;
    const LayerRow<T> row(args, index, keep, whole);
    for_each_pack<T>(kWarp, row.columns, [&](int64_t i) {
        Values<T> y = row.normal(i);
        const Values<T> weight = row.of_model(args.weight, i, 1.0), bias = row.of_model(args.norm_bias, i, 0.0);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) y[j] = y[j] * weight[j] + bias[j];
        row.write(args.y, i, y);
    });
}

/// dx and dresidual of a row. For the sums it leaves `room` numbers of each row: the statistics, and the dropout's bits.
template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(LayerNormArguments args, bool keep, bool whole, int64_t room) {
    using A = accumulated<T>;
    const int64_t index = row_of_warp();
    if (index >= args.rows.models * args.rows.rows) return;
    const LayerRow<T> row(args, index, keep, whole);
    const auto weighted = [&](int64_t i) {
        Values<T> g = row.of_row(args.grad, i);
        const Values<T> weight = row.of_model(args.weight, i, 1.0);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) g[j] *= weight[j];
        return g;
    };
    A sum_g = A(0), sum_gn = A(0);
    for_each_pack<T>(kWarp, row.columns, [&](int64_t i) {
        const Values<T> g = weighted(i), normal = row.normal(i);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
            sum_g += g[j];
            sum_gn += g[j] * normal[j];
        }
    });
    const A n = static_cast<A>(row.columns), mean_g = warp_sum(sum_g) / n, mean_gn = warp_sum(sum_gn) / n;
    for_each_pack<T>(kWarp, row.columns, [&](int64_t i) {
        Values<T> g = weighted(i);
        const Values<T> normal = row.normal(i);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) g[j] =
            (g[j] - mean_g - normal[j] * mean_gn) * row.inverse_deviation;
        if (args.residual != nullptr) {
            row.write(args.dresidual, i, g);
            row.dropout.apply(i, g);
        }
        row.write(args.dx, i, g);
    });
    A* left = static_cast<A*>(args.statistics) + room * index;
    row.dropout.write(row.columns, reinterpret_cast<uint32_t*>(left + kStatistics));
    if (threadIdx.x != 0) return;
    left[0] = row.mean;
    left[1] = row.inverse_deviation;
}

/// The parameters' gradients summed over a task's rows.
template <class T>
__global__ void __launch_bounds__(kSumColumns* kSumRows) sums_kernel(LayerNormArguments args, int64_t room) {
    using A = accumulated<T>;
    const ColumnTask at(args.rows);
    const T *x = static_cast<const T*>(args.x), *residual = static_cast<const T*>(args.residual);
    const int64_t parameter = at.model * args.rows.columns + at.column;
    const bool drops = room > kStatistics;
    const A scale = drops ? static_cast<A>(dropout_rule(args.dropout, at.model).scale) : A(1);
    A weight = A(0), norm_bias = A(0), bias = A(0), own_bias = A(0);
    if (residual != nullptr && args.bias != nullptr && at.place >= 0)
        own_bias = load(static_cast<const T*>(args.bias), parameter);
    for (int64_t r = at.first; r < at.last; r += kSumRows) {
        const int64_t row = at.model * args.rows.rows + r, element = row * args.rows.columns + at.column;
        const A* left = static_cast<const A*>(args.statistics) + room * row;
        const A g = load(static_cast<const T*>(args.grad), element);
        A s = load(x, element);
        if (residual != nullptr) {
            s += own_bias;
            if (drops) {
                const auto* bits = reinterpret_cast<const uint32_t*>(left + kStatistics);
                const unsigned place = mask_offset(r * args.rows.columns) + static_cast<unsigned>(at.column);
                s *= (bits[place / 32] >> place % 32 & 1) != 0 ? scale : A(0);
            }
            s += load(residual, element);
        }
        weight += g * (s - left[0]) * left[1];
        norm_bias += g;
        if (args.bias_sums != nullptr) bias += load(static_cast<const T*>(args.dx), element);
    }
    write_column_sum(args.weight_sums, at.place, weight);
    write_column_sum(args.norm_bias_sums, at.place, norm_bias);
    write_column_sum(args.bias_sums, at.place, bias);
}

template <class T>
bool whole_of(const LayerNormArguments& a) {
    return in_packs<T>(a.rows.columns,
                       {a.x, a.bias, a.residual, a.weight, a.norm_bias, a.grad, a.y, a.dx, a.dresidual});
}

RowShape shape_of(const LayerNormArguments& args) {
    return row_shape(args.rows, args.dtype, args.dropout.p != nullptr);
}

}  // namespace

int64_t layer_norm_room(const LayerNormArguments& args) {
    if (args.dropout.p == nullptr) return kStatistics;
    const int64_t of_number = args.dtype == DType::kFloat64 ? 2 : 1;
    return kStatistics + (mask_words(args.rows.columns) + of_number - 1) / of_number;
}

cudaError_t layer_norm_forward(const LayerNormArguments& args, cudaStream_t stream) {
    if (args.rows.models * args.rows.rows == 0) return cudaSuccess;
    const RowShape s = shape_of(args);
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        launch(forward_kernel<T>, s.grid, s.block, s.shared_bytes, stream, args, s.keep, whole_of<T>(args));
    });
}

cudaError_t layer_norm_backward(const LayerNormArguments& args, cudaStream_t stream) {
    const Rows& rows = args.rows;
    const RowShape s = shape_of(args);
    const int64_t room = layer_norm_room(args);
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        if (rows.models == 0) return;
        if (rows.rows > 0)
            launch(backward_kernel<T>, s.grid, s.block, s.shared_bytes, stream, args, s.keep, whole_of<T>(args), room);
        launch(sums_kernel<T>, column_grid(rows), dim3(kSumColumns, kSumRows), 0, stream, args, room);
    });
}

}  // namespace dnnsuite::fused::kernels
