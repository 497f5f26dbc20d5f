// SPDX-License-Identifier: MIT
#include "host/contention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace dnnsuite::host {
namespace {

TEST(Contention, AnAdditionTakesAPlausibleTime) {
    double ns = addition_ns(100'000);
    for (int i = 0; i < 20; ++i) ns = std::min(ns, addition_ns(100'000));  // a busy machine takes the CPU away
    EXPECT_GT(ns, 0.1);                                                    // 10 GHz
    EXPECT_LT(ns, 1000);
    EXPECT_THROW(addition_ns(0), InvalidArgument);
}

TEST(Contention, TheCountersGrow) {
    const Disturbances before = read_disturbances(), after = read_disturbances();
    EXPECT_LE(before.t_ns, after.t_ns);
    EXPECT_LE(before.involuntary_switches, after.involuntary_switches);
    EXPECT_TRUE(std::isnan(before.steal_s) || before.steal_s <= after.steal_s);
    EXPECT_TRUE(std::isnan(before.pressure_s) || before.pressure_s <= after.pressure_s);
}

}  // namespace
}  // namespace dnnsuite::host
