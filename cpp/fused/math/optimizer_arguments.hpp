// SPDX-License-Identifier: MIT
// Arguments of an optimizer's step, the same for the CPU and CUDA.
#pragma once

#include "fused/arguments.hpp"

namespace dnnsuite::fused {

/// The update rules; variants that keep more or fewer states are rules of their own. The order is that of kRuleNames.
enum class Optimizer : int {
    kSgd,
    kSgdMomentum,
    kAdam,
    kAmsgrad,
    kNadam,
    kRadam,
    kAdamax,
    kLion,
    kAdadelta,
    kAdagrad,
    kRmsprop,
    kRmspropMomentum,
    kRmspropCentered,
    kRmspropCenteredMomentum,
    kAsgd,
    kRprop,
    kScale,
    kClamp,
};
constexpr const char* kRuleNames[] = {"sgd",
                                      "sgd_momentum",
                                      "adam",
                                      "amsgrad",
                                      "nadam",
                                      "radam",
                                      "adamax",
                                      "lion",
                                      "adadelta",
                                      "adagrad",
                                      "rmsprop",
                                      "rmsprop_momentum",
                                      "rmsprop_centered",
                                      "rmsprop_centered_momentum",
                                      "asgd",
                                      "rprop",
                                      "scale",
                                      "clamp"};
constexpr int kOptimizerTensors = 5;  // parameter, gradient, up to three states
constexpr int kOptimizerScalars = 2;  // steps taken, and one number that some rules carry from step to step
constexpr int kOptimizerHypers = 6;

/// One parameter [B, ...] with its gradient and states: model b begins at data[i] + b * stride[i] elements. Its
/// scalars are float64 [B].
struct OptimizerEntry {
    void* data[kOptimizerTensors];
    int64_t stride[kOptimizerTensors];
    double* scalar[kOptimizerScalars];  // null: the rule needs none
    int64_t scalar_stride[kOptimizerScalars];
    int64_t elements;  // of one model
};

struct OptimizerArguments {
    Optimizer rule;
    DType dtype;
    int64_t models, entry_count;
    const OptimizerEntry* entries;
    const double* hyper[kOptimizerHypers];  // float64 [B] each, in the order of the rule
    const double* factor;                   // [B] on the gradients, or null
    const bool* active;                     // [B] or null: a model that is not keeps everything as it is
    unsigned* tickets;                      // CUDA: zeros [entries, B], which a step leaves as it found them
    bool maximize, decoupled, nesterov;
};

/// One model's part of them: what a rule is made from.
struct RuleValues {
    double hyper[kOptimizerHypers];
    double gradient;  // what the gradient is multiplied by: factor, negative to maximize
    double step;      // the number of this step, from 1 on
    double carried;   // the second scalar as the last step left it; 0 before the first
    bool decoupled, nesterov;
};

DNNSUITE_HD RuleValues rule_values(const OptimizerArguments& args, const OptimizerEntry& entry, int64_t model) {
    RuleValues values{};
    for (int i = 0; i < kOptimizerHypers; ++i)
        if (args.hyper[i] != nullptr) values.hyper[i] = args.hyper[i][model];
    values.gradient = args.factor != nullptr ? args.factor[model] : 1.0;
    if (args.maximize) values.gradient = -values.gradient;
    if (entry.scalar[0] != nullptr) values.step = entry.scalar[0][model * entry.scalar_stride[0]] + 1.0;
    if (entry.scalar[1] != nullptr) values.carried = entry.scalar[1][model * entry.scalar_stride[1]];
    values.decoupled = args.decoupled;
    values.nesterov = args.nesterov;
    return values;
}

}  // namespace dnnsuite::fused
