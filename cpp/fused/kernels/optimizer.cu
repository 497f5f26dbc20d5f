// SPDX-License-Identifier: MIT
// An optimizer's step over all parameters in one launch: their pointers travel as the kernel's argument. Only lists
// longer than an argument can hold take more launches.
#include <type_traits>

#include "fused/kernels/pack.cuh"
#include "fused/math/optimizer.hpp"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kChunk = 4096;  // elements of a block

#if CUDART_VERSION >= 12010
constexpr int kMaxEntries = 256;  // arguments of up to 32 KiB
#else
constexpr int kMaxEntries = 30;  // 4 KiB
#endif
constexpr int kFewEntries = 30;  // of float32 alone: each size of the argument is a kernel of its own

/// Entries, and which blocks are whose: entry e has blocks [first_block[e], first_block[e + 1]).
template <int Entries>
struct Table {
    OptimizerArguments args;
    int64_t first_entry;  // where the tickets of the first entry are
    int count;
    int first_block[Entries + 1];
    OptimizerEntry entry[Entries];
};
static_assert(sizeof(Table<kFewEntries>) <= 4096 && sizeof(Table<kMaxEntries>) <= 32764);

template <class T, class Rule>
__device__ void update_chunk(const OptimizerEntry& entry, int64_t model, int64_t begin, const Rule& rule,
                             accumulated<T> factor) {
    using A = accumulated<T>;
    constexpr int kStates = Rule::kStates;
    constexpr int kTensors = 2 + kStates;
    T* data[kTensors];
    bool aligned = true;
    for (int i = 0; i < kTensors; ++i) {
        data[i] = static_cast<T*>(entry.data[i]) + model * entry.stride[i];
        aligned = aligned && reinterpret_cast<uintptr_t>(data[i]) % 16 == 0;
    }
    const int64_t end = begin + kChunk < entry.elements ? begin + kChunk : entry.elements;
    for_each_pack<T>(kThreads, end - begin, [&](int64_t offset) {
        const int64_t i = begin + offset;
        const bool whole = aligned && i + kPack<T> <= end;
        Values<T> v[kTensors];
        DNNSUITE_UNROLL for (int t = 0; t < kTensors; ++t) v[t] = load_pack(data[t], i, end, whole);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
            A state[kStates > 0 ? kStates : 1];
            DNNSUITE_UNROLL for (int s = 0; s < kStates; ++s) state[s] = v[2 + s][j];
            rule.update(v[0][j], v[1][j] * factor, state);
            DNNSUITE_UNROLL for (int s = 0; s < kStates; ++s) v[2 + s][j] = state[s];
        }
        store_pack(data[0], i, end, whole, v[0]);
        DNNSUITE_UNROLL for (int s = 0; s < kStates; ++s) store_pack(data[2 + s], i, end, whole, v[2 + s]);
    });
}

/// The scalars are written by the last block of a parameter and model, when all have read them. The ticket counts the
/// blocks and wraps to zero by itself, so a captured graph can be replayed.
template <class Rule>
__device__ void write_scalars(const OptimizerEntry& entry, const RuleValues& values, int64_t model, unsigned* ticket,
                              unsigned blocks) {
    if (Rule::kScalars == 0) return;
    __threadfence();
    if (atomicInc(ticket, blocks - 1) == blocks - 1) advance<Rule>(entry, values, model);
}

template <class T, class Rule, int Entries>
__device__ void run_block(const Table<Entries>& table, int place, int64_t model, int64_t begin) {
    using A = accumulated<T>;
    const OptimizerEntry& entry = table.entry[place];
    // The rule takes powers in double: once a block.
    alignas(Rule) __shared__ unsigned char room[sizeof(Rule)];
    __shared__ A factor;
    RuleValues values;
    if (threadIdx.x == 0) {
        values = rule_values(table.args, entry, model);
        new (room) Rule(values);
        factor = static_cast<A>(values.gradient);
    }
    __syncthreads();
    const Rule rule = *reinterpret_cast<const Rule*>(room);
    update_chunk<T, Rule>(entry, model, begin, rule, factor);
    if (threadIdx.x == 0) {
        unsigned* ticket = table.args.tickets + (table.first_entry + place) * table.args.models + model;
        const unsigned blocks = static_cast<unsigned>(table.first_block[place + 1] - table.first_block[place]);
        write_scalars<Rule>(entry, values, model, ticket, blocks);
    }
}

template <class T, class Rule, int Entries>
__global__ void __launch_bounds__(kThreads) step_kernel(const __grid_constant__ Table<Entries> table) {
    const int64_t model = blockIdx.y;
    if (table.args.active != nullptr && !table.args.active[model]) return;
    const int block = static_cast<int>(blockIdx.x);
    int low = 0, high = table.count;  // the last entry whose first block is not behind this one
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (table.first_block[middle] <= block)
            low = middle;
        else
            high = middle;
    }
    run_block<T, Rule>(table, low, model, (block - table.first_block[low]) * kChunk);
}

template <int Entries>
cudaError_t step(const OptimizerArguments& args, int64_t begin, int64_t end, cudaStream_t stream) {
    Table<Entries> table{};
    table.args = args;
    table.args.entries = nullptr;  // the host's copy
    table.first_entry = begin;
    int blocks = 0;
    for (int64_t i = begin; i < end; ++i) {
        table.first_block[table.count] = blocks;
        table.entry[table.count++] = args.entries[i];
        // A parameter without elements has one block all the same: it counts the step.
        const int64_t elements = args.entries[i].elements;
        blocks += static_cast<int>(blocks_for(elements > 0 ? elements : 1, kChunk));
    }
    if (blocks == 0) return cudaSuccess;
    table.first_block[table.count] = blocks;
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(args.models));
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        if constexpr (Entries == kMaxEntries || std::is_same_v<T, float>)
            with_rule<accumulated<T>>(args.rule, [&](auto rule) {
                launch(step_kernel<T, typename decltype(rule)::type, Entries>, grid, kThreads, 0, stream, table);
            });
    });
}

}  // namespace

cudaError_t optimizer_step(const OptimizerArguments& args, cudaStream_t stream) {
    if (args.entry_count <= kFewEntries && args.dtype == DType::kFloat32)
        return step<kFewEntries>(args, 0, args.entry_count, stream);
    for (int64_t begin = 0; begin < args.entry_count; begin += kMaxEntries) {
        const int64_t end = begin + kMaxEntries < args.entry_count ? begin + kMaxEntries : args.entry_count;
        const cudaError_t error = step<kMaxEntries>(args, begin, end, stream);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

}  // namespace dnnsuite::fused::kernels
