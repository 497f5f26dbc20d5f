// SPDX-License-Identifier: MIT
// Attention over short sequences: the scores of one head [L, L] stay in cache from the product with the keys to the
// product with the values, and are made again in the backward pass. Compiled once per instruction set.
#include "fused/cpu/attention_kernel.hpp"

#include "fused/cpu/dropout_mask.hpp"
#include "fused/cpu/small_gemm.hpp"
#include "fused/cpu/tasks.hpp"
#include "fused/cpu/transpose.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

/// Copies rows of `columns` numbers, scaled, into rows padded with zeros.
template <class T>
void pack_rows(const T* from, int64_t stride, int64_t rows, int64_t columns, T scale, T* to, int64_t ld) {
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < ld; c += kLanes)
            (Vec<T>::load(from + r * stride + c, columns - c) * Vec<T>(scale)).store(to + r * ld + c);
    }
}

/// One head of one sequence.
template <class T>
struct Head {
    int64_t model, sequence, head;
    const T *q, *k, *v;  // [L, d], rows `3 * heads * head_dim` apart
};

/// Sizes and scratch of a call, for any head.
template <class T>
struct Workspace {
    int64_t length, dim, lp, dp, qkv_stride, out_stride;
    T scale;
    T *p, *dp_tile, *dropped, *factors, *kt, *rows[4], *result;

    Workspace(const AttentionArguments& args, void* scratch)
        : length(args.length), dim(args.head_dim), lp(padded(length)), dp(padded(dim)),
          qkv_stride(3 * args.heads * dim), out_stride(args.heads * dim),
          scale(T(1) / square_root(static_cast<T>(dim))) {
        T* free = static_cast<T*>(scratch);
        const auto take = [&free](int64_t count) {
            T* mine = free;
            free += count;
            return mine;
        };
        p = take(length * lp);
        dp_tile = take(length * lp);
        dropped = take(length * lp);
        factors = take(dropout_room(length * length));
        kt = take(dim * lp);
        for (T*& operand : rows) operand = take(length * dp);
        result = take(length * dp);
    }
};

template <class T>
Head<T> head_at(const AttentionArguments& args, int64_t sequence, int64_t head) {
    const int64_t width = args.heads * args.head_dim;
    const T* q = at<T>(args.qkv, sequence * args.length * 3 * width + head * args.head_dim);
    return {sequence / args.sequences, sequence % args.sequences, head, q, q + width, q + 2 * width};
}

/// Softmax of one row of scores: keys that are ignored, in the future or padding get probability 0.
template <class T>
void softmax_row(T* scores, const bool* ignored, int64_t length, int64_t last_key, int64_t lp) {
    const T minus_infinity = static_cast<T>(-__builtin_inf());
    for (int64_t j = last_key; j < lp; ++j) scores[j] = minus_infinity;
    if (ignored != nullptr)
        for (int64_t j = 0; j < length; ++j) scores[j] = ignored[j] ? minus_infinity : scores[j];
    Vec<T> high(minus_infinity), total(T(0));
    for (int64_t j = 0; j < lp; j += kLanes) high = maximum(high, Vec<T>::load(scores + j));
    const Vec<T> top(largest(high));
    for (int64_t j = 0; j < lp; j += kLanes) {
        const Vec<T> e = exponential(Vec<T>::load(scores + j) - top);
        total = total + e;
        e.store(scores + j);
    }
    const Vec<T> inverse(T(1) / sum(total));
    for (int64_t j = 0; j < lp; j += kLanes) (Vec<T>::load(scores + j) * inverse).store(scores + j);
}

/// w.p = softmax(q k^T * scale) before dropout.
template <class T>
void probabilities(const AttentionArguments& args, const Head<T>& h, Workspace<T>& w) {
    pack_transposed(h.k, w.qkv_stride, w.length, w.dim, w.scale, w.kt, w.lp);
    small_gemm(Strided<T>{h.q, w.qkv_stride, 1}, w.kt, w.lp, w.p, w.lp, w.length, w.lp, w.dim);
    const int64_t row = (h.model * args.sequences + h.sequence) * w.length;
    const bool* ignored = args.ignored == nullptr ? nullptr : args.ignored + row;
    for (int64_t i = 0; i < w.length; ++i)
        softmax_row(w.p + i * w.lp, ignored, w.length, args.causal ? i + 1 : w.length, w.lp);
}

/// The dropout factors of the tile [L, L], or null.
template <class T>
const T* tile_factors(const AttentionArguments& args, const Head<T>& h, Workspace<T>& w) {
    if (args.dropout.p == nullptr) return nullptr;
    const int64_t tile = w.length * w.length, first = (h.sequence * args.heads + h.head) * tile;
    return dropout_factors(dropout_rule(args.dropout, h.model), first, tile, w.factors);
}

/// to = from * factors, row by row: factors are packed [L, L], the tiles padded.
template <class T>
void drop(const T* from, const T* factors, T* to, const Workspace<T>& w) {
    for (int64_t i = 0; i < w.length; ++i) {
        for (int64_t j = 0; j < w.lp; j += kLanes) {
            const Vec<T> f = Vec<T>::load(factors + i * w.length + j, w.length - j);
            (Vec<T>::load(from + i * w.lp + j) * f).store(to + i * w.lp + j);
        }
    }
}

template <class T>
void copy_result(const Workspace<T>& w, T* to, int64_t stride) {
    for (int64_t i = 0; i < w.length; ++i) {
        for (int64_t c = 0; c < w.dim; c += kLanes)
            Vec<T>::load(w.result + i * w.dp + c).store(to + i * stride + c, w.dim - c);
    }
}

template <class T>
void forward_head(const AttentionArguments& args, const Head<T>& h, Workspace<T>& w, T* out) {
    probabilities(args, h, w);
    if (const T* factors = tile_factors(args, h, w)) drop(w.p, factors, w.p, w);
    pack_rows(h.v, w.qkv_stride, w.length, w.dim, T(1), w.rows[0], w.dp);
    small_gemm(Strided<T>{w.p, w.lp, 1}, w.rows[0], w.dp, w.result, w.dp, w.length, w.dp, w.length);
    copy_result(w, out, w.out_stride);
}

/// dS = P * (dP - sum(dP * P)), in place of dP.
template <class T>
void softmax_backward(T* dp, const T* p, const Workspace<T>& w) {
    for (int64_t i = 0; i < w.length; ++i, dp += w.lp, p += w.lp) {
        Vec<T> total(T(0));
        for (int64_t j = 0; j < w.lp; j += kLanes) total = total + Vec<T>::load(dp + j) * Vec<T>::load(p + j);
        const Vec<T> t(sum(total));
        for (int64_t j = 0; j < w.lp; j += kLanes) (Vec<T>::load(p + j) * (Vec<T>::load(dp + j) - t)).store(dp + j);
    }
}

/// grad and the three parts of dqkv are this head's [L, d].
template <class T>
void backward_head(const AttentionArguments& args, const Head<T>& h, Workspace<T>& w, const T* grad, T* dq, T* dk,
                   T* dv) {
    T *const grad_rows = w.rows[0], *const k_rows = w.rows[1], *const q_rows = w.rows[2];
    probabilities(args, h, w);
    pack_transposed(h.v, w.qkv_stride, w.length, w.dim, T(1), w.kt, w.lp);
    small_gemm(Strided<T>{grad, w.out_stride, 1}, w.kt, w.lp, w.dp_tile, w.lp, w.length, w.lp, w.dim);
    const T* used = w.p;
    if (const T* factors = tile_factors(args, h, w)) {
        drop(w.p, factors, w.dropped, w);
        drop(w.dp_tile, factors, w.dp_tile, w);
        used = w.dropped;
    }
    pack_rows(grad, w.out_stride, w.length, w.dim, T(1), grad_rows, w.dp);
    small_gemm(Strided<T>{used, 1, w.lp}, grad_rows, w.dp, w.result, w.dp, w.length, w.dp, w.length);
    copy_result(w, dv, w.qkv_stride);

    softmax_backward(w.dp_tile, w.p, w);
    pack_rows(h.k, w.qkv_stride, w.length, w.dim, w.scale, k_rows, w.dp);
    small_gemm(Strided<T>{w.dp_tile, w.lp, 1}, k_rows, w.dp, w.result, w.dp, w.length, w.dp, w.length);
    copy_result(w, dq, w.qkv_stride);
    pack_rows(h.q, w.qkv_stride, w.length, w.dim, w.scale, q_rows, w.dp);
    small_gemm(Strided<T>{w.dp_tile, 1, w.lp}, q_rows, w.dp, w.result, w.dp, w.length, w.dp, w.length);
    copy_result(w, dk, w.qkv_stride);
}

template <class T>
void forward(const AttentionArguments& args, int64_t begin, int64_t end, void* scratch) {
    Workspace<T> w(args, scratch);
    for (int64_t sequence = begin; sequence < end; ++sequence) {
        T* out = static_cast<T*>(args.out) + sequence * args.length * w.out_stride;
        for (int64_t head = 0; head < args.heads; ++head)
            forward_head(args, head_at<T>(args, sequence, head), w, out + head * w.dim);
    }
}

template <class T>
void backward(const AttentionArguments& args, int64_t begin, int64_t end, void* scratch) {
    Workspace<T> w(args, scratch);
    for (int64_t sequence = begin; sequence < end; ++sequence) {
        const T* grad = at<T>(args.grad, sequence * args.length * w.out_stride);
        T* dqkv = static_cast<T*>(args.dqkv) + sequence * args.length * w.qkv_stride;
        for (int64_t head = 0; head < args.heads; ++head, grad += w.dim, dqkv += w.dim)
            backward_head(args, head_at<T>(args, sequence, head), w, grad, dqkv, dqkv + w.out_stride,
                          dqkv + 2 * w.out_stride);
    }
}

}  // namespace

void attention_forward(const AttentionArguments& args, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64) return forward<double>(args, begin, end, scratch);
    forward<float>(args, begin, end, scratch);
}

void attention_backward(const AttentionArguments& args, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64) return backward<double>(args, begin, end, scratch);
    backward<float>(args, begin, end, scratch);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
