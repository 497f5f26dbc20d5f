// SPDX-License-Identifier: MIT
// One pass over parameters, gradients and states. Compiled once per instruction set.
#include "fused/cpu/optimizer_kernel.hpp"

#include <optional>

#include "fused/cpu/vector_math.hpp"
#include "fused/math/optimizer.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

/// Loads sixteen of every array, updates them, stores all but the gradient. The rule comes by value: behind a reference
/// its numbers would be read again after every store.
template <class T, class Rule>
void update_chunk(const OptimizerEntry& entry, const OptimizerChunk& chunk, const Rule rule, T factor) {
    constexpr int kStates = Rule::kStates, kRoom = kStates > 0 ? kStates : 1;
    const auto data = [&](int i) {
        return static_cast<T*>(entry.data[i]) + chunk.model * entry.stride[i] + chunk.begin;
    };
    T* const p = data(0);
    const T* const g = data(1);
    T* state[kRoom];
    for (int s = 0; s < kStates; ++s) state[s] = data(2 + s);
    for_each_vector(chunk.end - chunk.begin, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        Vec<T> parameter = Vec<T>::load(p + i, n), values[kRoom];
        _Pragma("GCC unroll 4") for (int s = 0; s < kStates; ++s) values[s] = Vec<T>::load(state[s] + i, n);
        rule.update(parameter, Vec<T>::load(g + i, n) * Vec<T>(factor), values);
        parameter.store(p + i, n);
        _Pragma("GCC unroll 4") for (int s = 0; s < kStates; ++s) values[s].store(state[s] + i, n);
    });
}

template <class T, class Rule>
void run(const OptimizerArguments& args, const OptimizerChunk* begin, const OptimizerChunk* end) {
    std::optional<Rule> rule;
    T factor(1);
    int64_t model = -1;
    double step = 0.0, carried = 0.0;  // what `rule` was made for, beside the model
    for (const OptimizerChunk* chunk = begin; chunk != end; ++chunk) {
        const OptimizerEntry& entry = args.entries[chunk->entry];
        const auto scalar = [&](int i) {
            return entry.scalar[i] == nullptr ? 0.0 : entry.scalar[i][chunk->model * entry.scalar_stride[i]];
        };
        if (chunk->model != model || scalar(0) != step || scalar(1) != carried) {
            model = chunk->model;
            step = scalar(0);
            carried = scalar(1);
            const RuleValues values = rule_values(args, entry, model);
            rule.emplace(values);
            factor = static_cast<T>(values.gradient);
        }
        update_chunk<T, Rule>(entry, *chunk, *rule, factor);
    }
}

}  // namespace

void optimizer_step(const OptimizerArguments& args, const OptimizerChunk* begin, const OptimizerChunk* end) {
    if (args.dtype == DType::kFloat64)
        with_rule<double>(args.rule, [&](auto tag) { run<double, typename decltype(tag)::type>(args, begin, end); });
    else
        with_rule<float>(args.rule, [&](auto tag) { run<float, typename decltype(tag)::type>(args, begin, end); });
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
