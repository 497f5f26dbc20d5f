// SPDX-License-Identifier: MIT
// The update rules by their kind. A rule is one model's hyper-parameters, made once per model; `update` is the formula
// of one element, with T a number or a vector of numbers of type S. The formulas are those of torch.optim.
#pragma once

#include "fused/math/optimizer_adam.hpp"
#include "fused/math/optimizer_average.hpp"
#include "fused/math/optimizer_sgd.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Stands for a rule's type.
template <class Rule>
struct RuleTag {
    using type = Rule;
};

/// On the host: calls body(RuleTag<rule>) for the rule of `kind` over numbers S.
template <class S, class Body>
void with_rule(Optimizer kind, const Body& body) {
    switch (kind) {
        case Optimizer::kSgd: return body(RuleTag<Sgd<S, false>>());
        case Optimizer::kSgdMomentum: return body(RuleTag<Sgd<S, true>>());
        case Optimizer::kAdam: return body(RuleTag<Adam<S, false>>());
        case Optimizer::kAmsgrad: return body(RuleTag<Adam<S, true>>());
        case Optimizer::kNadam: return body(RuleTag<Nadam<S>>());
        case Optimizer::kRadam: return body(RuleTag<Radam<S>>());
        case Optimizer::kAdamax: return body(RuleTag<Adamax<S>>());
        case Optimizer::kLion: return body(RuleTag<Lion<S>>());
        case Optimizer::kAdadelta: return body(RuleTag<Adadelta<S>>());
        case Optimizer::kAdagrad: return body(RuleTag<Adagrad<S>>());
        case Optimizer::kRmsprop: return body(RuleTag<Rmsprop<S, false, false>>());
        case Optimizer::kRmspropMomentum: return body(RuleTag<Rmsprop<S, false, true>>());
        case Optimizer::kRmspropCentered: return body(RuleTag<Rmsprop<S, true, false>>());
        case Optimizer::kRmspropCenteredMomentum: return body(RuleTag<Rmsprop<S, true, true>>());
        case Optimizer::kAsgd: return body(RuleTag<Asgd<S>>());
        case Optimizer::kRprop: return body(RuleTag<Rprop<S>>());
        case Optimizer::kScale: return body(RuleTag<Scale<S>>());
        case Optimizer::kClamp: return body(RuleTag<Clamp<S>>());
    }
}

/// Number of states and scalars of a parameter for the rule of `kind`.
struct RuleNeeds {
    int states = 0, scalars = 0, hypers = 0;
};
inline RuleNeeds rule_needs(Optimizer kind) {
    RuleNeeds needs;
    with_rule<double>(kind, [&](auto tag) {
        using Rule = typename decltype(tag)::type;
        needs = {Rule::kStates, Rule::kScalars, Rule::kHypers};
    });
    return needs;
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
