// SPDX-License-Identifier: MIT
#include "fused/batch_norm_operators.hpp"

#include "fused/cpu/batch_norm_kernel.hpp"
#include "fused/cpu/cache.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

struct BatchNormBackend {
    /// A thread takes whole models; where there are fewer models than threads the threads share each one's tasks.
    template <class Kernel>
    static void run(const BatchNormArguments& args, const Kernel& kernel) {
        using Step = BatchNormStep;
        const Rows& rows = args.rows;
        const int64_t scratch = batch_norm_scratch(args);
        const bool whole = rows.tasks_per_model == 1 || rows.models >= torch::stable::get_num_threads();
        run_tasks(rows.models, whole ? rows.elements : 0, scratch, [&](int64_t begin, int64_t end, void* room) {
            for (int64_t model = begin; model < end; ++model) {
                const auto tasks = [&](Step step) {
                    if (whole) return kernel(args, model, step, 0, rows.tasks_per_model, room);
                    torch::stable::parallel_for(0, rows.tasks_per_model, 1, [&](int64_t first, int64_t last) {
                        kernel(args, model, step, first, last, room);
                    });
                };
                kernel(args, model, Step::kPrepare, 0, 0, room);
                tasks(Step::kSums);
                kernel(args, model, Step::kCombine, 0, 0, room);
                if (args.y != nullptr || args.dx != nullptr) tasks(Step::kApply);
            }
        });
    }
    static BatchNormArguments placed(BatchNormArguments args, int64_t tensors) {
        const int64_t elements = args.rows.models * args.rows.elements;
        // What a pass reads and writes: x and y, or x, grad and dx.
        args.streams = leaves_caches(tensors * elements * (args.dtype == DType::kFloat64 ? 8 : 4));
        return args;
    }
    static void forward(const BatchNormArguments& args, const Tensor&) {
        run(placed(args, 2), DNNSUITE_SELECT(batch_norm_forward));
    }
    static void take_in(const BatchNormArguments& args) {
        if (args.dtype == DType::kFloat64)
            take_in_all<double>(args);
        else
            take_in_all<float>(args);
    }
    template <class T>
    static void take_in_all(const BatchNormArguments& args) {
        const int64_t count = args.rows.models * args.channels;
        const T* statistics = static_cast<const T*>(args.statistics);
        T *mean = static_cast<T*>(args.running_mean), *variance = static_cast<T*>(args.running_variance);
        for (int64_t b = 0; args.tracked != nullptr && b < args.rows.models; ++b) ++args.tracked[b];
        for (int64_t i = 0; i < count; ++i) {
            mean[i] = generic::running_average(mean[i], statistics[i], static_cast<T>(args.momentum));
            variance[i] =
                generic::running_average(variance[i], statistics[2 * count + i], static_cast<T>(args.momentum));
        }
    }
    static void backward(const BatchNormArguments& args, const Tensor&) {
        run(placed(args, 3), DNNSUITE_SELECT(batch_norm_backward));
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    using Operators = BatchNormOperators<BatchNormBackend>;
    Operators::implement(m);
    m.impl("batch_norm_act_backward_parameters", TORCH_BOX(&Operators::backward_parameters));
}

}  // namespace dnnsuite::fused
