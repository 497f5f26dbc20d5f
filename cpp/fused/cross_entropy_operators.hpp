// SPDX-License-Identifier: MIT
// cross_entropy: tensors to arguments, the same for both devices. A Backend has check_targets(check, args),
// forward(args, like), reduce(args, mean, loss), spread(args, mean, per_row, grad, scale) and backward(args, like).
#pragma once

#include <tuple>

#include "fused/tensors.hpp"

namespace dnnsuite::fused {

enum class Reduction { kNone, kMean, kSum };

inline Reduction parse_reduction(const Checker& check, const std::string& name) {
    if (name == "none") return Reduction::kNone;
    if (name == "mean") return Reduction::kMean;
    STD_TORCH_CHECK(name == "sum", check.op(), ": reduction must be 'none', 'mean' or 'sum', not '", name, "'");
    return Reduction::kSum;
}

inline CrossEntropyArguments cross_entropy_arguments(const Checker& check, const Tensor& logits, const Tensor& target,
                                                     int64_t ignore_index, double label_smoothing) {
    STD_TORCH_CHECK(logits.dim() == 3, check.op(), ": logits must be [B, R, C], not ", shape_text(logits));
    STD_TORCH_CHECK(logits.size(2) > 0, check.op(), ": logits must have at least one class, not shape ",
                    shape_text(logits));
    check.dtype(target, "target", ScalarType::Long);
    check.same_device(target, "target", logits);
    check.shape(target, "target", {logits.size(0), logits.size(1)});
    STD_TORCH_CHECK(label_smoothing >= 0.0 && label_smoothing <= 1.0, check.op(),
                    ": label_smoothing must be within [0, 1], not ", label_smoothing);
    CrossEntropyArguments args{};
    args.dtype = check.floating(logits, "logits");
    args.rows = cut_rows(logits.size(0), logits.size(1) * logits.size(2), logits.size(2));
    args.ignore_index = ignore_index;
    args.label_smoothing = label_smoothing;
    args.logits = logits.data_ptr();
    args.target = static_cast<const int64_t*>(target.data_ptr());
    return args;
}

/// The gradient of the loss is [B], or [B, R] when nothing was reduced; so is always the saved log-sum-exp.
inline void check_gradients(const Checker& check, const Tensor& grad, const Tensor& log_sum, const Tensor& logits,
                            Reduction reduction) {
    const ScalarType kind = accumulator_of(logits);
    check.dtype(log_sum, "log_sum", kind);
    check.same_device(log_sum, "log_sum", logits);
    check.shape(log_sum, "log_sum", {logits.size(0), logits.size(1)});
    check.dtype(grad, "grad", kind);
    check.same_device(grad, "grad", logits);
    if (reduction == Reduction::kNone)
        check.shape(grad, "grad", {logits.size(0), logits.size(1)});
    else
        check.shape(grad, "grad", {logits.size(0)});
}

template <class Backend>
struct CrossEntropyOperators {
    static std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& target, int64_t ignore_index,
                                                    double label_smoothing, std::string reduction) {
        const Checker check("cross_entropy");
        const Tensor x = packed(logits), y = packed(target);
        CrossEntropyArguments args = cross_entropy_arguments(check, x, y, ignore_index, label_smoothing);
        const Reduction kind = parse_reduction(check, reduction);
        Backend::check_targets(check, args);
        const Tensor row_loss = new_accumulator(x, {x.size(0), x.size(1)}), log_sum = new_like(row_loss);
        args.row_loss = row_loss.data_ptr();
        args.log_sum = log_sum.data_ptr();
        Backend::forward(args, x);
        if (kind == Reduction::kNone) return {row_loss, log_sum};
        Tensor loss = new_accumulator(x, {x.size(0)});
        Backend::reduce(args, kind == Reduction::kMean, loss.data_ptr(), x);
        return {loss, log_sum};
    }

    static Tensor cross_entropy_backward(const Tensor& grad, const Tensor& logits, const Tensor& target,
                                         const Tensor& log_sum, int64_t ignore_index, double label_smoothing,
                                         std::string reduction) {
        const Checker check("cross_entropy_backward");
        const Tensor x = packed(logits), y = packed(target), g = packed(grad), saved = packed(log_sum);
        CrossEntropyArguments args = cross_entropy_arguments(check, x, y, ignore_index, label_smoothing);
        const Reduction kind = parse_reduction(check, reduction);
        Backend::check_targets(check, args);
        check_gradients(check, g, saved, x, kind);
        const Tensor scale = new_accumulator(x, {x.size(0), x.size(1)});
        Tensor dlogits = new_like(x);
        args.scale = scale.data_ptr();
        args.saved_log_sum = saved.data_ptr();
        args.dlogits = dlogits.data_ptr();
        Backend::spread(args, kind == Reduction::kMean, kind == Reduction::kNone, g.data_ptr(), scale.data_ptr(), x);
        Backend::backward(args, x);
        return dlogits;
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("cross_entropy", TORCH_BOX(&cross_entropy));
        m.impl("cross_entropy_backward", TORCH_BOX(&cross_entropy_backward));
    }
};

}  // namespace dnnsuite::fused
