// SPDX-License-Identifier: MIT
#include "base/stop_rules.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "base/error.hpp"

namespace dnnsuite::base {
namespace {

std::vector<std::unique_ptr<StopRule>> all() {
    std::vector<std::unique_ptr<StopRule>> rules;
    rules.push_back(std::make_unique<Fixed>(100, 0.01, 1e9));
    rules.push_back(std::make_unique<StdRel>(0.005, 40, 0.0, 1e9));
    rules.push_back(std::make_unique<Entropy>(0.048, 0.36, 0.005, 1e9));
    rules.push_back(std::make_unique<Precision>(0.01, 80, 1e9));
    return rules;
}

TEST(StopRules, ConvergeOnAConstant) {
    for (const auto& rule : all()) {
        for (int i = 0; i < 400 && rule->status() == Status::kRunning; ++i) rule->add(0.25, 0);
        EXPECT_EQ(rule->status(), Status::kConverged) << rule->reason();
        EXPECT_THROW(rule->add(0.25, 0), Error);
    }
}

TEST(StopRules, DoNotConvergeOnAWalk) {
    std::mt19937_64 random(1);
    for (const auto& rule : all()) {
        double value = 1;
        for (int i = 0; i < 1500 && rule->status() == Status::kRunning; ++i)
            rule->add(value += random() % 2 == 0 ? 2e-4 : -2e-4, 0);
        EXPECT_NE(rule->status(), Status::kConverged);
    }
}

TEST(StopRules, EndWhenTheTimeIsUp) {
    Precision rule(0.01, 80, 5);
    EXPECT_EQ(rule.add(1, 4.9), Status::kRunning);
    EXPECT_EQ(rule.add(1, 5), Status::kTimeout);
    EXPECT_EQ(rule.total_s(), 2);
    EXPECT_THROW(Precision(0.01, 80, 0), InvalidArgument);
    EXPECT_THROW(Fixed(1, 0.01, 1).add(-1, 0), InvalidArgument);
}

}  // namespace
}  // namespace dnnsuite::base
