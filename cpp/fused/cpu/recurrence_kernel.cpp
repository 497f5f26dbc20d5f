// SPDX-License-Identifier: MIT
// Recurrent layers: a task takes some rows of one model's batch through all time steps. A step is one product of the state
// with weights that were packed once, and one pass over the gates. Compiled once per instruction set.
#include "fused/cpu/recurrence_kernel.hpp"

#include "fused/cpu/small_gemm.hpp"
#include "fused/cpu/tasks.hpp"
#include "fused/cpu/transpose.hpp"
#include "fused/cpu/vector_math.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// By exp(-2|x|), which cannot overflow: the absolute error is that of one rounding.
template <class T>
DNNSUITE_HD Vec<T> hyperbolic(const Vec<T>& x) {
    const Vec<T> zero(T(0)), one(T(1));
    const auto negative = x < zero;
    const Vec<T> e = exponential(select(negative, x + x, zero - (x + x)));
    const Vec<T> t = (one - e) / (one + e);
    return select(negative, zero - t, t);
}

namespace {

constexpr int64_t kPanel = kTileVectors * kLanes;

template <int Rows, class T>
int64_t tiles(const T* a, int64_t lda, const T* panel, T* c, int64_t ldc, int64_t row, int64_t rows, int64_t depth) {
    for (; row + Rows <= rows; row += Rows)
        gemm_tile<Rows, kTileVectors>(Strided<T>{a + row * lda, lda, 1}, panel, kPanel, c + row * ldc, ldc, depth);
    return row;
}

/// A row that no tile has: four sums of every fourth k, so that one multiplication need not wait for the one before.
template <class T>
void last_row(const T* a, const T* panel, T* c, int64_t depth) {
    Vec<T> sum[4][kTileVectors];
    for (auto& chain : sum)
        for (Vec<T>& v : chain) v = Vec<T>(T(0));
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
        _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) {
            _Pragma("GCC unroll 4") for (int v = 0; v < kTileVectors; ++v) sum[i][v] =
                sum[i][v] + Vec<T>(a[k + i]) * Vec<T>::load(panel + (k + i) * kPanel + v * kLanes);
        }
    }
    for (; k < depth; ++k) {
        for (int v = 0; v < kTileVectors; ++v)
            sum[0][v] = sum[0][v] + Vec<T>(a[k]) * Vec<T>::load(panel + k * kPanel + v * kLanes);
    }
    for (int v = 0; v < kTileVectors; ++v) ((sum[0][v] + sum[1][v]) + (sum[2][v] + sum[3][v])).store(c + v * kLanes);
}

/// C [rows, columns] = A [rows, depth] times a packed matrix; columns of A are `lda` apart by rows.
template <class T>
__attribute__((noinline)) void product(const T* a, int64_t lda, const T* packed, T* c, int64_t ldc, int64_t rows,
                                       int64_t columns, int64_t depth) {
    for (int64_t j = 0; j < columns; j += kPanel, packed += kPanel * depth) {
        int64_t row = tiles<kTileRows>(a, lda, packed, c + j, ldc, 0, rows, depth);
        row = tiles<(kTileRows > 4 ? 4 : 2)>(a, lda, packed, c + j, ldc, row, rows, depth);
        row = tiles<2>(a, lda, packed, c + j, ldc, row, rows, depth);
        if (row < rows) last_row(a + row * lda, packed, c + row * ldc + j, depth);
    }
}

template <class T>
void copy_row(const T* from, T* to, int64_t count) {
    if (from == nullptr)
        fill(to, count, T(0));
    else
        copy_run(from, to, count);
}

template <class T>
void pack(const RecurrenceArguments& args, bool backward, int64_t model) {
    const int64_t H = args.hidden, gates = gates_of(args.cell) * H;
    const int64_t depth = backward ? gates : H, columns = backward ? H : gates;
    const T* weight = static_cast<const T*>(args.weight) + model * gates * H;
    T* to = static_cast<T*>(args.packed) + model * depth * recurrence_columns(columns);
    for (int64_t j = 0; j < columns; j += kPanel, to += kPanel * depth) {
        const int64_t used = columns - j < kPanel ? columns - j : kPanel;
        if (!backward) {
            pack_transposed(weight + j * H, H, used, depth, T(1), to, kPanel);
            continue;
        }
        for (int64_t k = 0; k < depth; ++k) {
            copy_row(weight + k * H + j, to + k * kPanel, used);
            fill(to + k * kPanel + used, kPanel - used, T(0));
        }
    }
}

/// Work of a task, and the places of a step's numbers.
template <class T>
struct Walk {
    const RecurrenceArguments& args;
    int64_t H, gates, wide, narrow;  // wide, narrow: rows of scratch for gates and states
    int64_t model, first, rows;

    Walk(const RecurrenceArguments& arguments, int64_t task)
        : args(arguments), H(args.hidden), gates(gates_of(args.cell) * H), wide(recurrence_columns(gates)),
          narrow(recurrence_columns(H)) {
        const int64_t per_model = (args.rows + kRecurrenceRows - 1) / kRecurrenceRows;
        model = task / per_model;
        first = task % per_model * kRecurrenceRows;
        rows = args.rows - first < kRecurrenceRows ? args.rows - first : kRecurrenceRows;
    }
    /// The time of the s-th step.
    int64_t time(int64_t s) const { return args.reverse ? args.steps - 1 - s : s; }
    bool active(int64_t row, int64_t t) const {
        return args.lengths == nullptr || t < args.lengths[model * args.rows + first + row];
    }
    int64_t state(int64_t row) const { return (model * args.rows + first + row) * H; }
    int64_t at(int64_t t, int64_t row, int64_t columns) const {
        return ((model * args.steps + t) * args.rows + first + row) * columns;
    }
    /// The row of `from` ([B, T, N, H]) before the s-th step, or of the initial state, or null.
    const T* before(const void* from, const void* initial, int64_t s, int64_t row) const {
        const bool begins = s == 0 || !active(row, time(s - 1));
        return begins ? at_or_null(initial, state(row)) : static_cast<const T*>(from) + at(time(s - 1), row, H);
    }
    static const T* at_or_null(const void* base, int64_t offset) {
        return base == nullptr ? nullptr : static_cast<const T*>(base) + offset;
    }
};

template <class T>
DNNSUITE_HD Vec<T> load_or_zero(const T* from, int64_t i, int64_t n) {
    return from == nullptr ? Vec<T>(T(0)) : Vec<T>::load(from + i, n);
}

/// One row of a step: `x` the input's gates, `hidden` the state's; h and c are replaced.
template <Cell cell, class T>
void forward_row(const T* x, const T* hidden, const T* bias, T* h, T* c, T* saved, int64_t H) {
    for_each_vector(H, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const auto given = [&](int64_t gate) { return Vec<T>::load(x + gate * H + i, n); };
        const auto own = [&](int64_t gate) {
            const Vec<T> sum = Vec<T>::load(hidden + gate * H + i, n);
            return bias == nullptr ? sum : sum + Vec<T>::load(bias + gate * H + i, n);
        };
        const auto keep = [&](int64_t place, const Vec<T>& value) {
            if (saved != nullptr) value.store(saved + place * H + i, n);
        };
        if constexpr (cell == Cell::kLstm) {
            const auto s = lstm_step(given(0) + own(0), given(1) + own(1), given(2) + own(2), given(3) + own(3),
                                     Vec<T>::load(c + i, n));
            keep(0, s.i), keep(1, s.f), keep(2, s.g), keep(3, s.o);
            s.c.store(c + i, n);
            s.h.store(h + i, n);
        } else if constexpr (cell == Cell::kGru) {
            const Vec<T> hn = own(2);
            const auto s = gru_step(given(0), given(1), given(2), own(0), own(1), hn, Vec<T>::load(h + i, n));
            keep(0, s.r), keep(1, s.z), keep(2, s.n), keep(3, hn);
            s.h.store(h + i, n);
        } else {
            plain_step<cell>(given(0) + own(0)).store(h + i, n);
        }
    });
}

template <Cell cell, class T>
void forward_task(const RecurrenceArguments& args, int64_t task, T* scratch) {
    const Walk<T> w(args, task);
    const int64_t H = w.H, saved_columns = saved_of(cell) * H;
    T *hidden = scratch, *h = hidden + kRecurrenceRows * w.wide, *c = h + kRecurrenceRows * w.narrow;
    const T* bias = Walk<T>::at_or_null(args.bias, w.model * w.gates);
    const T* packed = static_cast<const T*>(args.packed) + w.model * H * w.wide;
    for (int64_t r = 0; r < w.rows; ++r) {
        copy_row(Walk<T>::at_or_null(args.h0, w.state(r)), h + r * w.narrow, H);
        copy_row(Walk<T>::at_or_null(args.c0, w.state(r)), c + r * w.narrow, H);
    }
    for (int64_t s = 0; s < args.steps; ++s) {
        const int64_t t = w.time(s);
        if (s == 0 && args.h0 == nullptr)
            fill(hidden, w.rows * w.wide, T(0));
        else
            product(h, w.narrow, packed, hidden, w.wide, w.rows, w.gates, H);
        for (int64_t r = 0; r < w.rows; ++r) {
            T *y = static_cast<T*>(args.y) + w.at(t, r, H), *own_h = h + r * w.narrow, *own_c = c + r * w.narrow;
            if (!w.active(r, t)) {
                fill(y, H, T(0));
                continue;
            }
            forward_row<cell>(static_cast<const T*>(args.gates) + w.at(t, r, w.gates), hidden + r * w.wide, bias, own_h,
                              own_c, mutable_at<T>(args.saved, w.at(t, r, saved_columns)), H);
            copy_row<T>(own_h, y, H);
            if (cell == Cell::kLstm && args.cells != nullptr)
                copy_row<T>(own_c, static_cast<T*>(args.cells) + w.at(t, r, H), H);
        }
    }
    for (int64_t r = 0; r < w.rows; ++r) {
        copy_row<T>(h + r * w.narrow, static_cast<T*>(args.h) + w.state(r), H);
        if (cell == Cell::kLstm) copy_row<T>(c + r * w.narrow, static_cast<T*>(args.c) + w.state(r), H);
    }
}

/// One row of a step backwards.
template <class T>
struct RowGradient {
    const T *grad_y, *saved, *cells, *y, *h_before, *c_before;
    T *dh, *past, *dc;  // the state's gradient by way of the gates, past them, and c's
    T *to, *dgates, *dhidden;
};

template <Cell cell, class T>
void backward_row(const RowGradient<T>& row, int64_t H) {
    for_each_vector(H, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const auto kept = [&](int64_t place) { return Vec<T>::load(row.saved + place * H + i, n); };
        const auto give = [&](int64_t gate, const Vec<T>& value, const Vec<T>& own) {
            value.store(row.dgates + gate * H + i, n);
            own.store(row.to + gate * H + i, n);
            if (row.dhidden != nullptr) own.store(row.dhidden + gate * H + i, n);
        };
        const Vec<T> dh = Vec<T>::load(row.dh + i, n) + Vec<T>::load(row.past + i, n) + load_or_zero(row.grad_y, i, n);
        Vec<T> past(T(0));
        if constexpr (cell == Cell::kLstm) {
            const LstmStep<Vec<T>> s{kept(0), kept(1), kept(2), kept(3), Vec<T>::load(row.cells + i, n), dh};
            const auto d = lstm_gradient(s, load_or_zero(row.c_before, i, n), dh, Vec<T>::load(row.dc + i, n));
            give(0, d.i, d.i), give(1, d.f, d.f), give(2, d.g, d.g), give(3, d.o, d.o);
            d.c.store(row.dc + i, n);
        } else if constexpr (cell == Cell::kGru) {
            const auto d = gru_gradient(kept(0), kept(1), kept(2), kept(3), load_or_zero(row.h_before, i, n), dh);
            give(0, d.r, d.r), give(1, d.z, d.z), give(2, d.xn, d.hn);
            past = d.h;
        } else {
            const Vec<T> d = plain_gradient<cell>(Vec<T>::load(row.y + i, n), dh);
            give(0, d, d);
        }
        past.store(row.past + i, n);
    });
}

template <class T>
void add_row(const T* from, T* to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

template <Cell cell, class T>
void backward_task(const RecurrenceArguments& args, int64_t task, T* scratch) {
    const Walk<T> w(args, task);
    const int64_t H = w.H;
    T *gates = scratch, *dh = gates + kRecurrenceRows * w.wide, *past = dh + kRecurrenceRows * w.narrow;
    T* dc = past + kRecurrenceRows * w.narrow;
    const T* packed = static_cast<const T*>(args.packed) + w.model * w.gates * w.narrow;
    for (int64_t r = 0; r < w.rows; ++r) {
        copy_row(Walk<T>::at_or_null(args.grad_h, w.state(r)), dh + r * w.narrow, H);
        copy_row(Walk<T>::at_or_null(args.grad_c, w.state(r)), dc + r * w.narrow, H);
        fill(past + r * w.narrow, H, T(0));
    }
    for (int64_t s = args.steps - 1; s >= 0; --s) {
        const int64_t t = w.time(s);
        for (int64_t r = 0; r < w.rows; ++r) {
            const int64_t place = w.at(t, r, H), wide = w.at(t, r, w.gates);
            T *dgates = static_cast<T*>(args.dgates) + wide, *dhidden = mutable_at<T>(args.dhidden, wide);
            if (!w.active(r, t)) {  // the state went past this step
                add_row(dh + r * w.narrow, past + r * w.narrow, H);
                fill(gates + r * w.wide, w.gates, T(0));
                fill(dgates, w.gates, T(0));
                if (dhidden != nullptr) fill(dhidden, w.gates, T(0));
                continue;
            }
            const RowGradient<T> row{Walk<T>::at_or_null(args.grad_y, place),
                                     Walk<T>::at_or_null(args.saved, w.at(t, r, saved_of(cell) * H)),
                                     Walk<T>::at_or_null(args.cells, place),
                                     static_cast<const T*>(args.y) + place,
                                     w.before(args.y, args.h0, s, r),
                                     w.before(args.cells, args.c0, s, r),
                                     dh + r * w.narrow,
                                     past + r * w.narrow,
                                     dc + r * w.narrow,
                                     gates + r * w.wide,
                                     dgates,
                                     dhidden};
            backward_row<cell>(row, H);
        }
        if (s > 0 || args.dh0 != nullptr) product(gates, w.wide, packed, dh, w.narrow, w.rows, H, w.gates);
    }
    for (int64_t r = 0; r < w.rows; ++r) {
        if (args.dc0 != nullptr) copy_row<T>(dc + r * w.narrow, static_cast<T*>(args.dc0) + w.state(r), H);
        if (args.dh0 == nullptr) continue;
        add_row(past + r * w.narrow, dh + r * w.narrow, H);
        copy_row<T>(dh + r * w.narrow, static_cast<T*>(args.dh0) + w.state(r), H);
    }
}

template <class T>
void forward(const RecurrenceArguments& args, int64_t task, T* scratch) {
    switch (args.cell) {
        case Cell::kLstm: return forward_task<Cell::kLstm>(args, task, scratch);
        case Cell::kGru: return forward_task<Cell::kGru>(args, task, scratch);
        case Cell::kTanh: return forward_task<Cell::kTanh>(args, task, scratch);
        case Cell::kRelu: return forward_task<Cell::kRelu>(args, task, scratch);
    }
}

template <class T>
void backward(const RecurrenceArguments& args, int64_t task, T* scratch) {
    switch (args.cell) {
        case Cell::kLstm: return backward_task<Cell::kLstm>(args, task, scratch);
        case Cell::kGru: return backward_task<Cell::kGru>(args, task, scratch);
        case Cell::kTanh: return backward_task<Cell::kTanh>(args, task, scratch);
        case Cell::kRelu: return backward_task<Cell::kRelu>(args, task, scratch);
    }
}

}  // namespace

void recurrence_pack(const RecurrenceArguments& args, bool backward, int64_t begin, int64_t end) {
    for (int64_t model = begin; model < end; ++model) {
        if (args.dtype == DType::kFloat64)
            pack<double>(args, backward, model);
        else
            pack<float>(args, backward, model);
    }
}

void recurrence_forward(const RecurrenceArguments& args, int64_t begin, int64_t end, void* scratch) {
    for (int64_t task = begin; task < end; ++task) {
        if (args.dtype == DType::kFloat64)
            forward(args, task, static_cast<double*>(scratch));
        else
            forward(args, task, static_cast<float*>(scratch));
    }
}

void recurrence_backward(const RecurrenceArguments& args, int64_t begin, int64_t end, void* scratch) {
    for (int64_t task = begin; task < end; ++task) {
        if (args.dtype == DType::kFloat64)
            backward(args, task, static_cast<double*>(scratch));
        else
            backward(args, task, static_cast<float*>(scratch));
    }
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
