// SPDX-License-Identifier: MIT
#include "fused/math/optimizer.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "fused/math/optimizer_rules.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

TEST(Adadelta, FirstStepByHand) {
    const AdadeltaRule<double> rule{0.5, 0.9, 0.1, 1e-6, 0.0};
    double parameter = 1.0, square_avg = 0.0, acc_delta = 0.0;
    adadelta(rule, parameter, 2.0, square_avg, acc_delta);
    const double delta = std::sqrt(1e-6) / std::sqrt(0.4 + 1e-6) * 2.0;
    EXPECT_NEAR(square_avg, 0.4, 1e-15);
    EXPECT_NEAR(acc_delta, 0.1 * delta * delta, 1e-18);
    EXPECT_NEAR(parameter, 1.0 - 0.5 * delta, 1e-15);
}

TEST(Adam, FirstStepIsTheLearningRate) {
    double parameter = 1.0, exp_avg = 0.0, exp_avg_sq = 0.0;
    const auto rule = adam_rule<double>(0.1, 0.9, 0.999, 0.0, 0.0, 1.0, false);
    adam<double>(rule, parameter, -3.0, exp_avg, exp_avg_sq, nullptr);
    EXPECT_NEAR(parameter, 1.1, 1e-14);
}

TEST(Adam, DecoupledDecayLeavesTheMomentsAlone) {
    double parameter = 1.0, exp_avg = 0.0, exp_avg_sq = 0.0;
    const auto rule = adam_rule<double>(0.1, 0.9, 0.999, 1e-8, 0.5, 1.0, true);
    adam<double>(rule, parameter, 0.0, exp_avg, exp_avg_sq, nullptr);
    EXPECT_EQ(exp_avg, 0.0);
    EXPECT_NEAR(parameter, 0.95, 1e-15);
}

TEST(Adam, AmsgradKeepsTheLargest) {
    double parameter = 1.0, exp_avg = 0.0, exp_avg_sq = 0.0, largest = 7.0;
    adam(adam_rule<double>(0.1, 0.9, 0.999, 1e-8, 0.0, 1.0, false), parameter, 1.0, exp_avg, exp_avg_sq, &largest);
    EXPECT_EQ(largest, 7.0);
}

TEST(Sgd, Momentum) {
    double parameter = 1.0, buffer = 100.0;  // what was there before the first step does not count
    sgd(SgdRule<double>{0.1, 0.9, 1.0, 0.0, false, true}, parameter, 2.0, &buffer);
    EXPECT_EQ(buffer, 2.0);
    EXPECT_NEAR(parameter, 0.8, 1e-15);
    sgd(SgdRule<double>{0.1, 0.9, 1.0, 0.0, true, false}, parameter, 1.0, &buffer);
    EXPECT_NEAR(buffer, 2.8, 1e-15);
    EXPECT_NEAR(parameter, 0.8 - 0.1 * (1.0 + 0.9 * 2.8), 1e-15);
}

TEST(OptimizerRules, TakeTheModelsOwnValues) {
    const double lr[] = {1.0, 2.0}, rho[] = {0.5, 0.75}, eps[] = {1e-3, 1e-4}, decay[] = {0.0, 0.1};
    OptimizerArguments args{};
    args.hyper[0] = lr;
    args.hyper[1] = rho;
    args.hyper[2] = eps;
    args.hyper[3] = decay;
    const auto rule = adadelta_rule_of<double>(args, 1);
    EXPECT_EQ(rule.lr, 2.0);
    EXPECT_EQ(rule.rho, 0.75);
    EXPECT_EQ(rule.one_minus_rho, 0.25);
    EXPECT_EQ(rule.eps, 1e-4);
    EXPECT_EQ(rule.weight_decay, 0.1);
}

}  // namespace
}  // namespace dnnsuite::fused::DNNSUITE_ISA
