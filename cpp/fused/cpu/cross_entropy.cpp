// SPDX-License-Identifier: MIT
// Rows go to cpu/cross_entropy_kernel; the reduction over a model's rows is here.
#include "fused/cross_entropy_operators.hpp"

#include "fused/cpu/cross_entropy_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

/// An index outside the classes would read other memory: looked at before the kernel runs.
void check_targets(const Checker& check, const CrossEntropyArguments& args) {
    const int64_t count = args.rows.models * args.rows.rows;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t target = args.target[i];
        STD_TORCH_CHECK((target >= 0 && target < args.rows.columns) || target == args.ignore_index, check.op(),
                        ": target must be within [0, ", args.rows.columns, ") or ignore_index ", args.ignore_index,
                        ", not ", target, " (model ", i / args.rows.rows, ", row ", i % args.rows.rows, ")");
    }
}

int64_t counted(const CrossEntropyArguments& args, int64_t model) {
    int64_t count = 0;
    for (int64_t i = 0; i < args.rows.rows; ++i)
        count += args.target[model * args.rows.rows + i] != args.ignore_index ? 1 : 0;
    return count;
}

template <class T>
void reduce(const CrossEntropyArguments& args, bool mean, T* loss) {
    const T* row_loss = static_cast<const T*>(args.row_loss);
    for (int64_t model = 0; model < args.rows.models; ++model) {
        double total = 0.0;
        for (int64_t i = 0; i < args.rows.rows; ++i) total += static_cast<double>(row_loss[model * args.rows.rows + i]);
        if (mean) total /= static_cast<double>(counted(args, model));
        loss[model] = static_cast<T>(total);
    }
}

/// d loss / d row loss.
template <class T>
void spread(const CrossEntropyArguments& args, bool mean, bool per_row, const T* grad, T* scale) {
    for (int64_t model = 0; model < args.rows.models; ++model) {
        const T divisor = mean ? static_cast<T>(counted(args, model)) : T(1);
        for (int64_t i = 0; i < args.rows.rows; ++i) {
            const int64_t row = model * args.rows.rows + i;
            scale[row] = grad[per_row ? row : model] / divisor;
        }
    }
}

struct CrossEntropyBackend {
    static void check_targets(const Checker& check, const CrossEntropyArguments& args) {
        fused::check_targets(check, args);
    }
    static void forward(const CrossEntropyArguments& args, const Tensor&) {
        run_rows(args, DNNSUITE_SELECT(cross_entropy_forward));
    }
    static void reduce(const CrossEntropyArguments& args, bool mean, void* loss, const Tensor&) {
        if (args.dtype == DType::kFloat64)
            fused::reduce(args, mean, static_cast<double*>(loss));
        else
            fused::reduce(args, mean, static_cast<float*>(loss));
    }
    static void spread(const CrossEntropyArguments& args, bool mean, bool per_row, const void* grad, void* scale,
                       const Tensor&) {
        if (args.dtype == DType::kFloat64)
            fused::spread(args, mean, per_row, static_cast<const double*>(grad), static_cast<double*>(scale));
        else
            fused::spread(args, mean, per_row, static_cast<const float*>(grad), static_cast<float*>(scale));
    }
    static void backward(const CrossEntropyArguments& args, const Tensor&) {
        run_rows(args, DNNSUITE_SELECT(cross_entropy_backward));
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { CrossEntropyOperators<CrossEntropyBackend>::implement(m); }

}  // namespace dnnsuite::fused
