// SPDX-License-Identifier: MIT
// Low-rank updates of B models, as adapters add them to a linear layer. A block of rows is read once, widened and
// dropped out in scratch, and stays in the second cache for all of its products, which are the tiles of gemm_kernel.cpp.
// Every sum is in order or by dots, so that a model's bits depend on its own rank, inputs and rows alone.
#include "fused/cpu/low_rank_kernel.hpp"

#include "fused/cpu/dropout_mask.hpp"
#include "fused/cpu/gemm_kernel.hpp"
#include "fused/cpu/tasks.hpp"
#include "fused/cpu/transpose.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

void widen(const uint16_t* from, float* to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
        __builtin_memcpy(to + i, &bits, sizeof(bits));
    }
}

/// To the nearest bfloat16, of two equally near ones to the even one.
void narrow(const float* from, uint16_t* to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        uint32_t bits;
        __builtin_memcpy(&bits, from + i, sizeof(bits));
        const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
        to[i] = static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
    }
}

template <class T>
constexpr DType kind_of = sizeof(T) == 8 ? DType::kFloat64 : DType::kFloat32;

template <class T>
class LowRank {
  public:
    LowRank(const LowRankArguments& all, int64_t model, void* scratch)
        : args_(all), model_(model), rank_(all.ranks[model]), block_(low_rank_block(all)),
          scale_(at<T>(all.scale, 0)[model]), drops_(all.dropout.p != nullptr),
          down_(at<T>(all.down, model * all.most * all.inputs)), up_(at<T>(all.up, model * all.outputs * all.most)),
          ld_(padded(all.outputs)), turned_(static_cast<T*>(scratch)), gradient_(turned_ + rank_ * ld_),
          rows_(gradient_ + rank_ * ld_) {
        const int64_t wide = all.inputs > all.outputs ? all.inputs : all.outputs;
        others_ = rows_ + block_ * wide;
        hidden_ = others_ + block_ * wide;
        factors_ = hidden_ + block_ * all.most;
        if (drops_) {
            rule_ = dropout_rule(all.dropout, model);
            drops_ = rule_.threshold > 0;
        }
    }

    void forward(int64_t first, int64_t last) {
        turn_up();
        for (int64_t row = first, rows; row < last; row += rows) {
            rows = last - row < block_ ? last - row : block_;
            const T* x = dropped(row, rows);
            T* hidden = mutable_at<T>(args_.hidden, (begin() + row) * args_.most);
            product(rows, rank_, args_.inputs, x, args_.inputs, 1, down_, args_.inputs, hidden, args_.most, false,
                    true);
            scale(hidden, rows, args_.most);
            const int64_t from = ((args_.shared_y ? 0 : begin()) + row) * args_.outputs;
            const int64_t to = (begin() + row) * args_.outputs, count = rows * args_.outputs;
            T* sum = args_.narrow ? others_ : mutable_at<T>(args_.out, to);
            if (args_.narrow)
                widen_rows(args_.y, from, count, sum);
            else
                copy_run(at<T>(args_.y, from), sum, count);
            product(rows, args_.outputs, rank_, hidden, args_.most, 1, turned_, ld_, sum, args_.outputs, true, false);
            if (args_.narrow) narrow_rows(sum, args_.out, to, count);
        }
    }

    void backward() {
        const int64_t most = args_.most, inputs = args_.inputs, outputs = args_.outputs;
        T* ddown = mutable_at<T>(args_.ddown, model_ * most * inputs);
        T* dup = mutable_at<T>(args_.dup, model_ * outputs * most);
        const int64_t last = args_.offsets[model_ + 1] - begin();
        if (rank_ < most || last == 0) {
            fill(ddown, most * inputs, T(0));
            fill(dup, outputs * most, T(0));
        }
        const bool fills = 4 * rank_ >= 3 * padded(rank_);  // the vectors of a row of `up`
        if (!fills) turn_up();
        for (int64_t row = 0, rows; row < last; row += rows) {
            rows = last - row < block_ ? last - row : block_;
            const T* grad = wide(args_.grad, (begin() + row) * outputs, rows * outputs, others_);
            const T* hidden = at<T>(args_.hidden, (begin() + row) * most);
            if (fills) {
                product(rows, rank_, outputs, grad, outputs, 1, up_, most, hidden_, rank_, false, false);
                product(outputs, rank_, rows, grad, 1, outputs, hidden, most, dup, most, row > 0, false);
            } else {
                product(rows, rank_, outputs, grad, outputs, 1, turned_, ld_, hidden_, rank_, false, true);
                product(rank_, outputs, rows, hidden, 1, most, grad, outputs, gradient_, ld_, row > 0, false);
            }
            scale(hidden_, rows, rank_);
            const T* x = dropped(row, rows);
            product(rank_, inputs, rows, hidden_, 1, rank_, x, inputs, ddown, inputs, row > 0, false);
            if (args_.dx != nullptr) input_gradient(row, rows);
        }
        if (!fills && last > 0) transpose_matrix(gradient_, ld_, rank_, outputs, T(1), dup, most);
    }

  private:
    /// `up` as rows of the outputs.
    void turn_up() { pack_transposed(up_, args_.most, args_.outputs, rank_, T(1), turned_, ld_); }

    int64_t begin() const { return args_.offsets[model_]; }

    void product(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_row, int64_t a_column, const T* b,
                 int64_t ldb, T* c, int64_t ldc, bool more, bool by_dots) const {
        gemm_block({kind_of<T>, rows, columns, depth, a, a_row, a_column, b, ldb, c, ldc, more, by_dots});
    }

    void scale(T* hidden, int64_t rows, int64_t ld) const {
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t i = 0; i < rank_; ++i) hidden[r * ld + i] *= scale_;
    }

    static void widen_rows(const void* from, int64_t offset, int64_t count, T* to) {
        if constexpr (sizeof(T) == 4) widen(at<uint16_t>(from, offset), to, count);
    }
    static void narrow_rows(const T* from, void* to, int64_t offset, int64_t count) {
        if constexpr (sizeof(T) == 4) narrow(from, mutable_at<uint16_t>(to, offset), count);
    }

    /// Numbers of a tensor where they lie, or widened in scratch.
    const T* wide(const void* tensor, int64_t offset, int64_t count, T* scratch) const {
        if (!args_.narrow) return at<T>(tensor, offset);
        widen_rows(tensor, offset, count, scratch);
        return scratch;
    }

    /// Rows of x after dropout, whose factors `kept_` are there until the next call.
    const T* dropped(int64_t row, int64_t rows) {
        const int64_t offset = ((args_.shared_x ? 0 : begin()) + row) * args_.inputs, count = rows * args_.inputs;
        const T* x = wide(args_.x, offset, count, rows_);
        if (!drops_) return x;
        kept_ = dropout_factors(rule_, row * args_.inputs, count, factors_);
        for_each_vector(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
            (Vec<T>::load(x + i, n) * Vec<T>::load(kept_ + i, n)).store(rows_ + i, n);
        });
        return rows_;
    }

    void input_gradient(int64_t row, int64_t rows) {
        const int64_t offset = (begin() + row) * args_.inputs, count = rows * args_.inputs;
        T* dx = args_.narrow ? rows_ : mutable_at<T>(args_.dx, offset);
        product(rows, args_.inputs, rank_, hidden_, rank_, 1, down_, args_.inputs, dx, args_.inputs, false, false);
        if (drops_) {
            for_each_vector(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
                (Vec<T>::load(dx + i, n) * Vec<T>::load(kept_ + i, n)).store(dx + i, n);
            });
        }
        if (args_.narrow) narrow_rows(dx, args_.dx, offset, count);
    }

    const LowRankArguments& args_;
    const int64_t model_, rank_, block_;
    const T scale_;
    bool drops_;
    DropoutRule rule_{};
    const T *const down_, *const up_;
    const int64_t ld_;
    T *turned_, *gradient_, *rows_, *others_, *hidden_, *factors_;
    const T* kept_ = nullptr;
};

}  // namespace

void low_rank(const LowRankArguments& args, const LowRankTask& task, void* scratch) {
    if (args.dtype == DType::kFloat64)
        LowRank<double>(args, task.model, scratch).forward(task.first, task.last);
    else
        LowRank<float>(args, task.model, scratch).forward(task.first, task.last);
}

void low_rank_backward(const LowRankArguments& args, int64_t model, void* scratch) {
    if (args.dtype == DType::kFloat64)
        LowRank<double>(args, model, scratch).backward();
    else
        LowRank<float>(args, model, scratch).backward();
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
