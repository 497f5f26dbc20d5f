// SPDX-License-Identifier: MIT
// A model's hyper-parameters out of the arrays of all models; the order is that of schema.cpp.
#pragma once

#include "fused/arguments.hpp"
#include "fused/math/optimizer.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

template <class S>
DNNSUITE_HD AdadeltaRule<S> adadelta_rule_of(const OptimizerArguments& args, int64_t model) {
    const double rho = args.hyper[1][model];
    return {S(args.hyper[0][model]), S(rho), S(1.0 - rho), S(args.hyper[2][model]), S(args.hyper[3][model])};
}

template <class S>
DNNSUITE_HD AdamRule<S> adam_rule_of(const OptimizerArguments& args, int64_t model) {
    return adam_rule<S>(args.hyper[1][model], args.hyper[2][model], args.hyper[3][model], args.hyper[4][model],
                        args.hyper[5][model], args.hyper[0][model], args.decoupled);
}

template <class S>
DNNSUITE_HD SgdRule<S> sgd_rule_of(const OptimizerArguments& args, int64_t model) {
    return {S(args.hyper[0][model]), S(args.hyper[1][model]), S(1.0 - args.hyper[2][model]),
            S(args.hyper[3][model]), args.nesterov,           args.first};
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
