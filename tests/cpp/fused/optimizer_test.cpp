// SPDX-License-Identifier: MIT
#include "fused/math/optimizer.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "fused/math/gradient.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

RuleValues values(std::initializer_list<double> hyper, double step = 1.0, double carried = 0.0) {
    RuleValues v{};
    int i = 0;
    for (double value : hyper) v.hyper[i++] = value;
    v.gradient = 1.0;
    v.step = step;
    v.carried = carried;
    return v;
}

TEST(Adadelta, FirstStepByHand) {
    double parameter = 1.0, state[2] = {0.0, 0.0};
    Adadelta<double>(values({0.5, 0.9, 1e-6, 0.0})).update(parameter, 2.0, state);
    const double delta = std::sqrt(1e-6) / std::sqrt(0.4 + 1e-6) * 2.0;
    EXPECT_NEAR(state[0], 0.4, 1e-15);
    EXPECT_NEAR(state[1], 0.1 * delta * delta, 1e-18);
    EXPECT_NEAR(parameter, 1.0 - 0.5 * delta, 1e-15);
}

TEST(Adam, FirstStepIsTheLearningRate) {
    double parameter = 1.0, state[2] = {0.0, 0.0};
    Adam<double, false>(values({0.1, 0.9, 0.999, 0.0, 0.0})).update(parameter, -3.0, state);
    EXPECT_NEAR(parameter, 1.1, 1e-14);
}

TEST(Adam, DecoupledDecayLeavesTheMomentsAlone) {
    double parameter = 1.0, state[2] = {0.0, 0.0};
    RuleValues v = values({0.1, 0.9, 0.999, 1e-8, 0.5});
    v.decoupled = true;
    Adam<double, false>(v).update(parameter, 0.0, state);
    EXPECT_EQ(state[0], 0.0);
    EXPECT_NEAR(parameter, 0.95, 1e-15);
}

TEST(Adam, AmsgradKeepsTheLargest) {
    double parameter = 1.0, state[3] = {0.0, 0.0, 7.0};
    Adam<double, true>(values({0.1, 0.9, 0.999, 1e-8, 0.0})).update(parameter, 1.0, state);
    EXPECT_EQ(state[2], 7.0);
}

TEST(Nadam, CarriesTheProductOfTheMomenta) {
    const RuleValues first = values({0.1, 0.9, 0.999, 0.0, 0.0, 0.0}, 1.0, 123.0);
    EXPECT_NEAR(Nadam<double>::carry(first), 0.45, 1e-15);  // what was there before the first step does not count
    EXPECT_NEAR(Nadam<double>::carry(values({0.1, 0.9, 0.999, 0.0, 0.0, 0.0}, 2.0, 0.45)), 0.2025, 1e-15);
}

TEST(Radam, IsMomentumUntilTheVarianceIsTractable) {
    double parameter = 1.0, state[2] = {0.0, 0.0};
    const Radam<double> rule(values({0.1, 0.9, 0.999, 1e-8, 0.0}));
    EXPECT_EQ(rule.rectified, 0.0);
    rule.update(parameter, 2.0, state);
    EXPECT_NEAR(parameter, 0.8, 1e-14);
    EXPECT_GT(Radam<double>(values({0.1, 0.9, 0.999, 1e-8, 0.0}, 100.0)).rectified, 0.0);
}

TEST(Adamax, DividesByTheLargestGradient) {
    double parameter = 1.0, state[2] = {0.0, 8.0};
    Adamax<double>(values({0.1, 0.5, 0.5, 0.0, 0.0})).update(parameter, 2.0, state);
    EXPECT_EQ(state[1], 4.0);
    EXPECT_NEAR(parameter, 1.0 - 0.1 / 0.5 * 1.0 / 4.0, 1e-15);
}

TEST(Adagrad, DecaysTheRate) {
    double parameter = 1.0, state[1] = {0.0};
    Adagrad<double>(values({0.1, 0.5, 0.0, 0.0}, 3.0)).update(parameter, 2.0, state);
    EXPECT_NEAR(parameter, 1.0 - 0.1 / 2.0, 1e-15);
}

TEST(Rmsprop, CenteredNeverTakesTheRootOfANegativeNumber) {
    float parameter = 1.0f, state[2] = {1.0f, 1.0000001f};
    Rmsprop<float, true, false>(values({0.1, 1.0, 1e-8, 0.0, 0.0})).update(parameter, 0.0f, state);
    EXPECT_EQ(parameter, 1.0f);
}

TEST(Sgd, Momentum) {
    double parameter = 1.0, buffer = 100.0;  // what was there before the first step does not count
    RuleValues v = values({0.1, 0.9, 0.5, 0.0});
    Sgd<double, true>(v).update(parameter, 2.0, &buffer);
    EXPECT_EQ(buffer, 2.0);
    EXPECT_NEAR(parameter, 0.8, 1e-15);
    v = values({0.1, 0.9, 0.0, 0.0}, 2.0);
    v.nesterov = true;
    Sgd<double, true>(v).update(parameter, 1.0, &buffer);
    EXPECT_NEAR(buffer, 2.8, 1e-15);
    EXPECT_NEAR(parameter, 0.8 - 0.1 * (1.0 + 0.9 * 2.8), 1e-15);
}

TEST(Asgd, RateFallsAndTheAverageStarts) {
    double parameter = 1.0, state[1] = {5.0};
    Asgd<double>(values({0.1, 0.0, 1.0, 10.0, 0.0})).update(parameter, 1.0, state);
    EXPECT_NEAR(parameter, 0.9, 1e-15);
    EXPECT_EQ(state[0], parameter);
    EXPECT_NEAR(Asgd<double>::carry(values({0.1, 0.5, 1.0, 10.0, 0.0}, 4.0)), 0.1 / 1.2, 1e-15);
}

TEST(Lion, StepsByTheSign) {
    double parameter = 1.0, state[1] = {-10.0};
    Lion<double>(values({0.1, 0.9, 0.5, 0.0})).update(parameter, 2.0, state);
    EXPECT_NEAR(parameter, 1.1, 1e-15);
    EXPECT_EQ(state[0], -4.0);
}

TEST(Rprop, RestsAfterATurn) {
    double parameter = 1.0, state[2] = {1.0, 0.5};
    const Rprop<double> rule(values({0.1, 0.5, 1.2, 1e-6, 50.0}, 2.0));
    rule.update(parameter, -2.0, state);
    EXPECT_EQ(parameter, 1.0);
    EXPECT_EQ(state[0], 0.0);
    EXPECT_EQ(state[1], 0.25);
    rule.update(parameter, -2.0, state);
    EXPECT_EQ(parameter, 1.25);
}

TEST(Rules, TakeTheModelsOwnValues) {
    const double lr[] = {1.0, 2.0}, factor[] = {1.0, 0.5};
    double step[] = {3.0, 7.0};
    OptimizerArguments args{};
    args.hyper[0] = lr;
    args.factor = factor;
    args.maximize = true;
    OptimizerEntry entry{};
    entry.scalar[0] = step;
    entry.scalar_stride[0] = 1;
    const RuleValues v = rule_values(args, entry, 1);
    EXPECT_EQ(v.hyper[0], 2.0);
    EXPECT_EQ(v.gradient, -0.5);
    EXPECT_EQ(v.step, 8.0);
    advance<Adagrad<double>>(entry, v, 1);
    EXPECT_EQ(step[0], 3.0);
    EXPECT_EQ(step[1], 8.0);
}

TEST(Rules, NeedWhatTheyUpdate) {
    EXPECT_EQ(rule_needs(Optimizer::kAmsgrad).states, 3);
    EXPECT_EQ(rule_needs(Optimizer::kNadam).scalars, 2);
    EXPECT_EQ(rule_needs(Optimizer::kNadam).hypers, 6);
    EXPECT_EQ(rule_needs(Optimizer::kScale).scalars, 0);
    EXPECT_EQ(sizeof(kRuleNames) / sizeof(kRuleNames[0]), static_cast<size_t>(Optimizer::kClamp) + 1);
}

TEST(GradientNorm, LetsNanWinAMaximum) {
    EXPECT_EQ(norm_join(Norm::kInfinity, 2.0, 1.0), 2.0);
    EXPECT_TRUE(std::isnan(norm_join(Norm::kInfinity, 2.0, std::nan(""))));
    EXPECT_TRUE(std::isnan(norm_join(Norm::kInfinity, std::nan(""), 2.0)));
    EXPECT_EQ(norm_finish(Norm::kTwo, 2.0, norm_term(Norm::kTwo, 2.0, -3.0)), 3.0);
    EXPECT_NEAR(norm_finish(Norm::kPower, 3.0, norm_term(Norm::kPower, 3.0, -3.0)), 3.0, 1e-14);
}

}  // namespace
}  // namespace dnnsuite::fused::DNNSUITE_ISA
