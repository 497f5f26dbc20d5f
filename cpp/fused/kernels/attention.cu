// SPDX-License-Identifier: MIT
// Attention over short sequences: a block owns a head of a sequence, its warps share the tokens. The probabilities
// of a token live in shared memory and are made again in the backward pass; the bits of a head's dropout are drawn first.
#include "fused/kernels/mask.cuh"
#include "fused/kernels/pack.cuh"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kLongest = 128;
constexpr int kMaskWords = mask_words(kLongest * kLongest);

/// The head of a block: where its rows begin and how far apart they are.
template <class T>
struct Head {
    using A = accumulated<T>;
    int64_t qkv_stride, out_stride, qkv_first, out_first;
    int length, dim;
    A scale;
    const T *q, *k, *v;
    const bool* ignored;
    const uint32_t* mask;  // the bits of its dropout, or null
    unsigned mask_begin;
    A kept_factor;
    bool causal, whole;

    /// `room`: of kMaskWords for the bits. All threads must call it.
    __device__ Head(const AttentionArguments& args, bool in_packs, uint32_t* room)
        : mask(nullptr), mask_begin(0), kept_factor(1), whole(in_packs) {
        const int64_t block = blockIdx.x, sequence = quotient(block, args.heads), head = block - sequence * args.heads;
        length = static_cast<int>(args.length);
        dim = static_cast<int>(args.head_dim);
        const int64_t model = quotient(sequence, args.sequences);
        const int64_t index = (sequence - model * args.sequences) * args.heads + head;
        out_stride = args.heads * dim;
        qkv_stride = 3 * out_stride;
        qkv_first = sequence * length * qkv_stride + head * dim;
        out_first = sequence * length * out_stride + head * dim;
        scale = A(1) / square_root(static_cast<A>(dim));
        q = static_cast<const T*>(args.qkv) + qkv_first;
        k = q + out_stride;
        v = k + out_stride;
        ignored = args.ignored == nullptr ? nullptr : args.ignored + sequence * length;
        causal = args.causal;
        if (args.dropout.p == nullptr) return;
        const DropoutRule rule = dropout_rule(args.dropout, model);
        const int64_t scores = args.length * args.length, begin = index * scores;
        draw_mask(rule, begin, scores, room, static_cast<int>(threadIdx.y), kWarps);
        __syncthreads();
        mask = room;
        mask_begin = mask_offset(begin);
        kept_factor = static_cast<A>(rule.scale);
    }

    __device__ A dot(const T* a, int64_t a_stride, int i, const T* b, int64_t b_stride, int j) const {
        A sum = A(0);
        for (int c = 0; c < dim; c += kPack<T>) {
            const Values<T> left = load_pack(a + i * a_stride, c, dim, whole);
            const Values<T> right = load_pack(b + j * b_stride, c, dim, whole);
            DNNSUITE_UNROLL for (int n = 0; n < kPack<T>; ++n) sum += left[n] * right[n];
        }
        return sum;
    }
    /// Score of query i and key j, minus infinity where j is not to be seen.
    __device__ A score(int i, int j) const {
        if ((causal && j > i) || (ignored != nullptr && ignored[j])) return -static_cast<A>(INFINITY);
        return dot(q, qkv_stride, i, k, qkv_stride, j) * scale;
    }
    __device__ A factor(int i, int j) const {
        if (mask == nullptr) return A(1);
        const unsigned at = mask_begin + static_cast<unsigned>(i * length + j);
        return (mask[at / 32] >> at % 32 & 1) != 0 ? kept_factor : A(0);
    }
};

/// Writes the scores of query i to `scores` and returns their log-sum-exp.
template <class T>
__device__ accumulated<T> score_row(const Head<T>& h, int i, accumulated<T>* scores) {
    using A = accumulated<T>;
    A high = -static_cast<A>(INFINITY), total = A(0);
    for (int j = static_cast<int>(threadIdx.x); j < h.length; j += kWarp) {
        scores[j] = h.score(i, j);
        high = maximum(high, scores[j]);
    }
    high = warp_max(high);
    for (int j = static_cast<int>(threadIdx.x); j < h.length; j += kWarp) total += device_exp(scores[j] - high);
    return high + device_log(warp_sum(total));
}

template <class T>
__global__ void __launch_bounds__(kWarp* kWarps) forward_kernel(AttentionArguments args, bool whole) {
    using A = accumulated<T>;
    __shared__ A all[kWarps][kLongest];
    __shared__ uint32_t mask[kMaskWords];
    const Head<T> h(args, whole, mask);
    A* p = all[threadIdx.y];
    for (int i = static_cast<int>(threadIdx.y); i < h.length; i += kWarps) {
        const A log_sum = score_row(h, i, p);
        for (int j = static_cast<int>(threadIdx.x); j < h.length; j += kWarp)
            p[j] = device_exp(p[j] - log_sum) * h.factor(i, j);
        __syncwarp();
        for (int c = static_cast<int>(threadIdx.x); c < h.dim; c += kWarp) {
            A sum = A(0);
            for (int j = 0; j < h.length; ++j) sum += p[j] * load(h.v, j * h.qkv_stride + c);
            store(static_cast<T*>(args.out), h.out_first + i * h.out_stride + c, sum);
        }
        __syncwarp();
    }
}

/// Rows first (dq, and what the columns need of each row), then columns (dk, dv).
template <class T>
__global__ void __launch_bounds__(kWarp* kWarps) backward_kernel(AttentionArguments args, bool whole) {
    using A = accumulated<T>;
    __shared__ A first[kWarps][kLongest], second[kWarps][kLongest], log_sums[kLongest], totals[kLongest];
    __shared__ uint32_t mask[kMaskWords];
    const Head<T> h(args, whole, mask);
    const T* grad = static_cast<const T*>(args.grad) + h.out_first;
    T* dq = static_cast<T*>(args.dqkv) + h.qkv_first;
    T *dk = dq + h.out_stride, *dv = dk + h.out_stride;
    A *const p = first[threadIdx.y], *const ds = second[threadIdx.y];

    for (int i = static_cast<int>(threadIdx.y); i < h.length; i += kWarps) {
        const A log_sum = score_row(h, i, p);
        A total = A(0);
        for (int j = static_cast<int>(threadIdx.x); j < h.length; j += kWarp) {
            p[j] = device_exp(p[j] - log_sum);
            ds[j] = h.dot(grad, h.out_stride, i, h.v, h.qkv_stride, j) * h.factor(i, j);
            total += p[j] * ds[j];
        }
        total = warp_sum(total);
        for (int j = static_cast<int>(threadIdx.x); j < h.length; j += kWarp) ds[j] = p[j] * (ds[j] - total) * h.scale;
        if (threadIdx.x == 0) {
            log_sums[i] = log_sum;
            totals[i] = total;
        }
        __syncwarp();
        for (int c = static_cast<int>(threadIdx.x); c < h.dim; c += kWarp) {
            A sum = A(0);
            for (int j = 0; j < h.length; ++j) sum += ds[j] * load(h.k, j * h.qkv_stride + c);
            store(dq, i * h.qkv_stride + c, sum);
        }
        __syncwarp();
    }
    __syncthreads();

    for (int j = static_cast<int>(threadIdx.y); j < h.length; j += kWarps) {
        for (int i = static_cast<int>(threadIdx.x); i < h.length; i += kWarp) {
            const A probability = device_exp(h.score(i, j) - log_sums[i]), f = h.factor(i, j);
            const A dp = h.dot(grad, h.out_stride, i, h.v, h.qkv_stride, j) * f;
            p[i] = probability * f;
            ds[i] = probability * (dp - totals[i]) * h.scale;
        }
        __syncwarp();
        for (int c = static_cast<int>(threadIdx.x); c < h.dim; c += kWarp) {
            A sum_k = A(0), sum_v = A(0);
            for (int i = 0; i < h.length; ++i) {
                sum_k += ds[i] * load(h.q, i * h.qkv_stride + c);
                sum_v += p[i] * load(grad, i * h.out_stride + c);
            }
            store(dk, j * h.qkv_stride + c, sum_k);
            store(dv, j * h.qkv_stride + c, sum_v);
        }
        __syncwarp();
    }
}

}  // namespace

cudaError_t attention_forward(const AttentionArguments& args, cudaStream_t stream) {
    const int64_t blocks = args.models * args.sequences * args.heads;
    if (blocks * args.length == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        const bool whole = in_packs<T>(args.head_dim, {args.qkv});
        launch(forward_kernel<T>, static_cast<unsigned>(blocks), dim3(kWarp, kWarps), 0, stream, args, whole);
    });
}

cudaError_t attention_backward(const AttentionArguments& args, cudaStream_t stream) {
    const int64_t blocks = args.models * args.sequences * args.heads;
    if (blocks * args.length == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        const bool whole = in_packs<T>(args.head_dim, {args.qkv, args.grad});
        launch(backward_kernel<T>, static_cast<unsigned>(blocks), dim3(kWarp, kWarps), 0, stream, args, whole);
    });
}

}  // namespace dnnsuite::fused::kernels
