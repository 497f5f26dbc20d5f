// SPDX-License-Identifier: MIT
// cross_entropy: tensors to cpu/cross_entropy_kernel, and the reduction over a model's rows.
#include "fused/cpu/cross_entropy_kernel.hpp"

#include <tuple>

#include "fused/cpu/parallel.hpp"
#include "fused/cross_entropy_checks.hpp"

namespace dnnsuite::fused {
namespace {

template <class Kernel>
void run(const CrossEntropyArguments& args, const Kernel& kernel) {
    run_tasks(args.rows.tasks(), args.rows.rows_per_task * args.rows.columns, 1,
              [&](int64_t begin, int64_t end, void*) { kernel(args, begin, end); });
}

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
void reduce(const CrossEntropyArguments& args, Reduction reduction, T* loss) {
    const T* row_loss = static_cast<const T*>(args.row_loss);
    for (int64_t model = 0; model < args.rows.models; ++model) {
        double total = 0.0;
        for (int64_t i = 0; i < args.rows.rows; ++i)
            total += static_cast<double>(row_loss[model * args.rows.rows + i]);
        if (reduction == Reduction::kMean) total /= static_cast<double>(counted(args, model));
        loss[model] = static_cast<T>(total);
    }
}

/// d loss / d row loss.
template <class T>
void spread(const CrossEntropyArguments& args, Reduction reduction, const T* grad, T* scale) {
    for (int64_t model = 0; model < args.rows.models; ++model) {
        const T divisor = reduction == Reduction::kMean ? static_cast<T>(counted(args, model)) : T(1);
        for (int64_t i = 0; i < args.rows.rows; ++i) {
            const int64_t row = model * args.rows.rows + i;
            scale[row] = grad[reduction == Reduction::kNone ? row : model] / divisor;
        }
    }
}

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& target, int64_t ignore_index,
                                         double label_smoothing, std::string reduction) {
    const Checker check("cross_entropy");
    const Tensor x = packed(logits), y = packed(target);
    CrossEntropyArguments args = cross_entropy_arguments(check, x, y, ignore_index, label_smoothing);
    const Reduction kind = parse_reduction(check, reduction);
    check_targets(check, args);
    const Tensor row_loss = new_tensor(x, {x.size(0), x.size(1)}), log_sum = new_like(row_loss);
    args.row_loss = row_loss.data_ptr();
    args.log_sum = log_sum.data_ptr();
    run(args, DNNSUITE_SELECT(cross_entropy_forward));
    if (kind == Reduction::kNone) return {row_loss, log_sum};
    Tensor loss = new_tensor(x, {x.size(0)});
    if (args.dtype == DType::kFloat64)
        reduce(args, kind, static_cast<double*>(loss.data_ptr()));
    else
        reduce(args, kind, static_cast<float*>(loss.data_ptr()));
    return {loss, log_sum};
}

Tensor cross_entropy_backward(const Tensor& grad, const Tensor& logits, const Tensor& target, const Tensor& log_sum,
                              int64_t ignore_index, double label_smoothing, std::string reduction) {
    const Checker check("cross_entropy_backward");
    const Tensor x = packed(logits), y = packed(target), g = packed(grad), saved = packed(log_sum);
    CrossEntropyArguments args = cross_entropy_arguments(check, x, y, ignore_index, label_smoothing);
    const Reduction kind = parse_reduction(check, reduction);
    check_targets(check, args);
    check_gradients(check, g, saved, x, kind);
    const Tensor scale = new_tensor(x, {x.size(0), x.size(1)});
    if (args.dtype == DType::kFloat64)
        spread(args, kind, static_cast<const double*>(g.data_ptr()), static_cast<double*>(scale.data_ptr()));
    else
        spread(args, kind, static_cast<const float*>(g.data_ptr()), static_cast<float*>(scale.data_ptr()));
    Tensor dlogits = new_like(x);
    args.scale = scale.data_ptr();
    args.saved_log_sum = saved.data_ptr();
    args.dlogits = dlogits.data_ptr();
    run(args, DNNSUITE_SELECT(cross_entropy_backward));
    return dlogits;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("cross_entropy", TORCH_BOX(&cross_entropy));
    m.impl("cross_entropy_backward", TORCH_BOX(&cross_entropy_backward));
}

}  // namespace dnnsuite::fused
