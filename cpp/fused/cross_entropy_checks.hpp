// SPDX-License-Identifier: MIT
#pragma once

#include "fused/checks.hpp"

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
    const ScalarType kind =
        logits.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
    check.dtype(log_sum, "log_sum", kind);
    check.shape(log_sum, "log_sum", {logits.size(0), logits.size(1)});
    check.dtype(grad, "grad", kind);
    if (reduction == Reduction::kNone)
        check.shape(grad, "grad", {logits.size(0), logits.size(1)});
    else
        check.shape(grad, "grad", {logits.size(0)});
}

}  // namespace dnnsuite::fused
