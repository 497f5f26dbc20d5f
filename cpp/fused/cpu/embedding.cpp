// SPDX-License-Identifier: MIT
// embedding: rows are copied, and their gradients added in the order of the indices. Nothing here is arithmetic
// enough to be worth an instruction set.
#include "fused/embedding_operators.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "fused/cpu/cache.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

constexpr int64_t kMostParts = 8;        // of the vocabulary: a thread owns rows, so no two add to the same one
constexpr int64_t kPartBytes = 2 << 20;  // of a gradient that one thread adds to: most of it stays in L2

int64_t element_bytes(DType dtype) { return dtype == DType::kFloat64 ? 8 : 4; }

const int64_t* indices_of(const EmbeddingArguments& args, int64_t model) {
    return args.indices + model * args.index_stride;
}

/// Shared indices are looked at once.
void check_indices(const Checker& check, const EmbeddingArguments& args) {
    const int64_t sets = args.index_stride == 0 && args.models > 0 ? 1 : args.models;
    for (int64_t model = 0; model < sets; ++model) {
        for (int64_t i = 0; i < args.count; ++i) {
            const int64_t index = indices_of(args, model)[i];
            STD_TORCH_CHECK(index >= 0 && index < args.vocabulary, check.op(), ": indices must be within [0, ",
                            args.vocabulary, "), not ", index, " (model ", model, ", position ", i, ")");
        }
    }
}

/// A row of a result that is larger than the caches; `bytes` and both places are multiples of 16.
void copy_past_caches(char* to, const char* from, size_t bytes) {
#if defined(__SSE2__)
    for (size_t i = 0; i < bytes; i += 16)
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
#else
    std::memcpy(to, from, bytes);
#endif
}

/// Zeros of which few are read again soon; `to` and `bytes` are multiples of 16.
void clear_past_caches(char* to, size_t bytes) {
#if defined(__SSE2__)
    for (size_t i = 0; i < bytes; i += 16) _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_setzero_si128());
#else
    std::memset(to, 0, bytes);
#endif
}

void let_others_see() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

void copy_rows(const EmbeddingArguments& args) {
    const int64_t row = args.columns * element_bytes(args.dtype);
    const auto bytes = static_cast<size_t>(row);
    const char* from = static_cast<const char*>(args.weight);
    char* to = static_cast<char*>(args.out);
    // Beside reads from memory such writes take twice the time.
    const bool streams = leaves_caches(args.models * args.count * row) &&
                         !leaves_caches(args.models * args.vocabulary * row) && bytes % 16 == 0 &&
                         reinterpret_cast<uintptr_t>(to) % 16 == 0;
    const int64_t grain = 16384 / (args.columns + 1) + 1;
    torch::stable::parallel_for(0, args.models * args.count, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t model = i / args.count;
            const int64_t word = model * args.vocabulary + indices_of(args, model)[i % args.count];
            char* const place = to + static_cast<size_t>(i) * bytes;
            const char* const place_of_row = from + static_cast<size_t>(word) * bytes;
            streams ? copy_past_caches(place, place_of_row, bytes) : void(std::memcpy(place, place_of_row, bytes));
        }
        if (streams) let_others_see();
    });
}

/// True if the gradient leaves the caches, and few of its rows are added to.
bool clears_past_caches(const EmbeddingArguments& args) {
    const int64_t row = args.columns * element_bytes(args.dtype), kSeldom = 8;
    return leaves_caches(args.models * args.vocabulary * row) && kSeldom * args.count <= args.vocabulary &&
           row % 16 == 0 && reinterpret_cast<uintptr_t>(args.dweight) % 16 == 0;
}

/// Rows [first, last) of one model's gradient.
template <class T>
void add_rows(const EmbeddingArguments& args, int64_t model, int64_t first, int64_t last, bool past_caches) {
    const int64_t columns = args.columns;
    T* dweight = static_cast<T*>(args.dweight) + model * args.vocabulary * columns;
    const T* grad = static_cast<const T*>(args.grad) + model * args.count * columns;
    char* const begin = reinterpret_cast<char*>(dweight + first * columns);
    const size_t bytes = static_cast<size_t>((last - first) * columns) * sizeof(T);
    past_caches ? clear_past_caches(begin, bytes) : void(std::memset(begin, 0, bytes));
    for (int64_t i = 0; i < args.count; ++i, grad += columns) {
        const int64_t index = indices_of(args, model)[i];
        if (index < first || index >= last || index == args.padding_idx) continue;
        T* row = dweight + index * columns;
        for (int64_t c = 0; c < columns; ++c) row[c] += grad[c];
    }
}

/// Each part reads all indices, and the gradients of its rows, out of order: there are no more than it takes.
int64_t parts_of(const EmbeddingArguments& args) {
    if (torch::stable::get_num_threads() > 1) return kMostParts;
    const int64_t bytes = args.vocabulary * args.columns * element_bytes(args.dtype);
    return std::clamp((bytes + kPartBytes - 1) / kPartBytes, int64_t{1}, kMostParts);
}

void add_all(const EmbeddingArguments& args) {
    const int64_t parts = parts_of(args), part = (args.vocabulary + parts - 1) / parts;
    const bool past_caches = clears_past_caches(args);
    run_tasks(args.models * parts, part * args.columns, 1, [&](int64_t begin, int64_t end, void*) {
        for (int64_t t = begin; t < end; ++t) {
            const int64_t model = t / parts, first = t % parts * part;
            const int64_t last = first + part < args.vocabulary ? first + part : args.vocabulary;
            if (first >= last) continue;
            if (args.dtype == DType::kFloat64)
                add_rows<double>(args, model, first, last, past_caches);
            else
                add_rows<float>(args, model, first, last, past_caches);
        }
        if (past_caches) let_others_see();
    });
}

struct EmbeddingBackend {
    static void check_indices(const Checker& check, const EmbeddingArguments& args) {
        fused::check_indices(check, args);
    }
    static void forward(const EmbeddingArguments& args, const Tensor&) { copy_rows(args); }
    static void backward(const EmbeddingArguments& args, const Tensor&) { add_all(args); }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { EmbeddingOperators<EmbeddingBackend>::implement(m); }

}  // namespace dnnsuite::fused
