// SPDX-License-Identifier: MIT
// An optimizer's step over all parameters in one launch: their pointers travel as the kernel's argument. Only lists
// longer than an argument can hold take more launches.
#include "fused/kernels/device.cuh"
#include "fused/math/optimizer_rules.hpp"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kChunk = 4096;  // elements of a block

#if CUDART_VERSION >= 12010
constexpr int kMaxEntries = 300;  // arguments of up to 32 KiB
#else
constexpr int kMaxEntries = 36;  // 4 KiB
#endif
constexpr int kFewEntries = 36;

/// Entries, and which blocks are whose: entry e has blocks [first_block[e], first_block[e + 1]).
template <int Entries>
struct Table {
    OptimizerArguments args;
    int count;
    int first_block[Entries + 1];
    OptimizerEntry entry[Entries];
};
static_assert(sizeof(Table<kFewEntries>) <= 4096 && sizeof(Table<kMaxEntries>) <= 32764);

template <class T, int states, class Update>
__device__ void update_chunk(const OptimizerEntry& entry, int64_t model, int64_t begin, Update update) {
    using A = accumulated<T>;
    T* data[2 + states];
    for (int i = 0; i < 2 + states; ++i) data[i] = static_cast<T*>(entry.data[i]) + model * entry.stride[i];
    const int64_t end = begin + kChunk < entry.elements ? begin + kChunk : entry.elements;
    for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
        A parameter = load(data[0], i), state[3] = {A(0), A(0), A(0)};
        for (int s = 0; s < states; ++s) state[s] = load(data[2 + s], i);
        update(parameter, static_cast<A>(load(data[1], i)), state);
        store(data[0], i, parameter);
        for (int s = 0; s < states; ++s) store(data[2 + s], i, state[s]);
    }
}

template <class T>
__device__ void run_block(const OptimizerArguments& args, const OptimizerEntry& entry, int64_t model, int64_t begin) {
    using A = accumulated<T>;
    switch (args.kind) {
        case Optimizer::kAdadelta: {
            const auto rule = adadelta_rule_of<A>(args, model);
            return update_chunk<T, 2>(entry, model, begin, [&](A& p, A g, A* s) { adadelta(rule, p, g, s[0], s[1]); });
        }
        case Optimizer::kAdam: {
            __shared__ AdamRule<A> shared;  // two powers in double: once a block
            if (threadIdx.x == 0) shared = adam_rule_of<A>(args, model);
            __syncthreads();
            const AdamRule<A> rule = shared;
            if (args.amsgrad)
                return update_chunk<T, 3>(entry, model, begin,
                                          [&](A& p, A g, A* s) { adam(rule, p, g, s[0], s[1], &s[2]); });
            return update_chunk<T, 2>(entry, model, begin,
                                      [&](A& p, A g, A* s) { adam(rule, p, g, s[0], s[1], static_cast<A*>(nullptr)); });
        }
        case Optimizer::kSgd: {
            const auto rule = sgd_rule_of<A>(args, model);
            if (args.has_momentum)
                return update_chunk<T, 1>(entry, model, begin, [&](A& p, A g, A* s) { sgd(rule, p, g, &s[0]); });
            return update_chunk<T, 0>(entry, model, begin,
                                      [&](A& p, A g, A*) { sgd(rule, p, g, static_cast<A*>(nullptr)); });
        }
    }
}

template <class T, int Entries>
__global__ void __launch_bounds__(kThreads) step_kernel(const __grid_constant__ Table<Entries> table) {
    const int block = static_cast<int>(blockIdx.x);
    int low = 0, high = table.count;  // the last entry whose first block is not behind this one
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (table.first_block[middle] <= block)
            low = middle;
        else
            high = middle;
    }
    run_block<T>(table.args, table.entry[low], blockIdx.y, (block - table.first_block[low]) * kChunk);
}

template <int Entries>
cudaError_t launch(const OptimizerArguments& args, int64_t begin, int64_t end, cudaStream_t stream) {
    Table<Entries> table{};
    table.args = args;
    table.args.entries = nullptr;  // the host's copy
    int blocks = 0;
    for (int64_t i = begin; i < end; ++i) {
        if (args.entries[i].elements == 0) continue;
        table.first_block[table.count] = blocks;
        table.entry[table.count++] = args.entries[i];
        blocks += static_cast<int>(blocks_for(args.entries[i].elements, kChunk));
    }
    if (blocks == 0 || args.models == 0) return cudaSuccess;
    table.first_block[table.count] = blocks;
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(args.models));
    return by_dtype(args.dtype, [&](auto tag) {
        step_kernel<pointed_to<decltype(tag)>, Entries><<<grid, kThreads, 0, stream>>>(table);
    });
}

}  // namespace

cudaError_t optimizer_step(const OptimizerArguments& args, cudaStream_t stream) {
    if (args.entry_count <= kFewEntries) return launch<kFewEntries>(args, 0, args.entry_count, stream);
    for (int64_t begin = 0; begin < args.entry_count; begin += kMaxEntries) {
        const int64_t end = begin + kMaxEntries < args.entry_count ? begin + kMaxEntries : args.entry_count;
        const cudaError_t error = launch<kMaxEntries>(args, begin, end, stream);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

}  // namespace dnnsuite::fused::kernels
