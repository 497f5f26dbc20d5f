// SPDX-License-Identifier: MIT
// recurrence_step_: the steps that a GPU takes, for a CPU that stands in for one. A CPU's own way is `recurrence`.
#include "fused/math/recurrence_step.hpp"

#include "fused/cpu/parallel.hpp"
#include "fused/recurrence_step_operators.hpp"

namespace dnnsuite::fused {
namespace {

struct HostMemory {
    template <class T>
    static T load(const T* p, int64_t i) {
        return p[i];
    }
    template <class T>
    static void store(T* p, int64_t i, T value) {
        p[i] = value;
    }
};

struct RecurrenceStepBackend {
    template <class Number>
    static void for_each(const RecurrenceStepArguments& args, const Number& number) {
        generic::by_cell(args.cell, [&](auto cell) {
            run_tasks(args.numbers(), 1, 0, [&](int64_t begin, int64_t end, void*) {
                for (int64_t i = begin; i < end; ++i) number(cell, i);
            });
        });
    }
    static void forward(const RecurrenceStepArguments& args, const Tensor&) {
        for_each(args, [&](auto cell, int64_t i) {
            constexpr Cell c = decltype(cell)::value;
            if (args.dtype == DType::kFloat64)
                generic::recurrence_step<c, double, double, HostMemory>(args, i);
            else
                generic::recurrence_step<c, float, float, HostMemory>(args, i);
        });
    }
    static void backward(const RecurrenceStepArguments& args, const Tensor&) {
        for_each(args, [&](auto cell, int64_t i) {
            constexpr Cell c = decltype(cell)::value;
            if (args.dtype == DType::kFloat64)
                generic::recurrence_step_gradient<c, double, double, HostMemory>(args, i);
            else
                generic::recurrence_step_gradient<c, float, float, HostMemory>(args, i);
        });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { RecurrenceStepOperators<RecurrenceStepBackend>::implement(m); }

}  // namespace dnnsuite::fused
