// SPDX-License-Identifier: MIT
// One pass over parameters, gradients and states. Compiled once per instruction set.
#include "fused/cpu/optimizer_kernel.hpp"

#include "fused/cpu/vector_math.hpp"
#include "fused/math/optimizer_rules.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

template <class T>
T* data(const OptimizerEntry& entry, int i, const OptimizerChunk& chunk) {
    if (entry.data[i] == nullptr) return nullptr;
    return static_cast<T*>(entry.data[i]) + chunk.model * entry.stride[i] + chunk.begin;
}

/// Loads sixteen of every array, calls update, stores all but the gradient.
template <class T, int states, class Update>
void update_chunk(const OptimizerEntry& entry, const OptimizerChunk& chunk, Update update) {
    T* const p = data<T>(entry, 0, chunk);
    const T* const g = data<T>(entry, 1, chunk);
    T* state[states > 0 ? states : 1];
    for (int s = 0; s < states; ++s) state[s] = data<T>(entry, 2 + s, chunk);
    const int64_t count = chunk.end - chunk.begin;
    for_each_vector(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        Vec<T> parameter = Vec<T>::load(p + i, n), values[states > 0 ? states : 1];
        _Pragma("GCC unroll 4") for (int s = 0; s < states; ++s) values[s] = Vec<T>::load(state[s] + i, n);
        update(parameter, Vec<T>::load(g + i, n), values);
        parameter.store(p + i, n);
        _Pragma("GCC unroll 4") for (int s = 0; s < states; ++s) values[s].store(state[s] + i, n);
    });
}

template <class T>
void step_adadelta(const OptimizerArguments& args, const OptimizerChunk* begin, const OptimizerChunk* end) {
    for (const OptimizerChunk* chunk = begin; chunk != end; ++chunk) {
        const auto rule = adadelta_rule_of<T>(args, chunk->model);
        update_chunk<T, 2>(args.entries[chunk->entry], *chunk,
                           [&](Vec<T>& p, const Vec<T>& g, Vec<T>* s)
                               __attribute__((always_inline)) { adadelta(rule, p, g, s[0], s[1]); });
    }
}

template <class T>
void step_adam(const OptimizerArguments& args, const OptimizerChunk* begin, const OptimizerChunk* end) {
    AdamRule<T> rule{};
    for (const OptimizerChunk* chunk = begin; chunk != end; ++chunk) {
        if (chunk == begin || chunk->model != chunk[-1].model) rule = adam_rule_of<T>(args, chunk->model);
        const OptimizerEntry& entry = args.entries[chunk->entry];
        if (args.amsgrad)
            update_chunk<T, 3>(entry, *chunk,
                               [&](Vec<T>& p, const Vec<T>& g, Vec<T>* s)
                                   __attribute__((always_inline)) { adam(rule, p, g, s[0], s[1], &s[2]); });
        else
            update_chunk<T, 2>(entry, *chunk,
                               [&](Vec<T>& p, const Vec<T>& g, Vec<T>* s)
                                   __attribute__((always_inline)) { adam<Vec<T>>(rule, p, g, s[0], s[1], nullptr); });
    }
}

template <class T>
void step_sgd(const OptimizerArguments& args, const OptimizerChunk* begin, const OptimizerChunk* end) {
    for (const OptimizerChunk* chunk = begin; chunk != end; ++chunk) {
        const auto rule = sgd_rule_of<T>(args, chunk->model);
        const OptimizerEntry& entry = args.entries[chunk->entry];
        if (args.has_momentum)
            update_chunk<T, 1>(entry, *chunk,
                               [&](Vec<T>& p, const Vec<T>& g, Vec<T>* s)
                                   __attribute__((always_inline)) { sgd(rule, p, g, &s[0]); });
        else
            update_chunk<T, 0>(entry, *chunk, [&](Vec<T>& p, const Vec<T>& g, Vec<T>*) __attribute__((always_inline)) {
                sgd<Vec<T>>(rule, p, g, nullptr);
            });
    }
}

template <class T>
void step(const OptimizerArguments& args, const OptimizerChunk* begin, const OptimizerChunk* end) {
    switch (args.kind) {
        case Optimizer::kAdadelta: return step_adadelta<T>(args, begin, end);
        case Optimizer::kAdam: return step_adam<T>(args, begin, end);
        case Optimizer::kSgd: return step_sgd<T>(args, begin, end);
    }
}

}  // namespace

void optimizer_step(const OptimizerArguments& args, const OptimizerChunk* begin, const OptimizerChunk* end) {
    if (args.dtype == DType::kFloat64) return step<double>(args, begin, end);
    step<float>(args, begin, end);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
