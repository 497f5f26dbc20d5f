// SPDX-License-Identifier: MIT
#include "host/contention.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"

namespace dnnsuite::host {
namespace {

TEST(Contention, AnAdditionTakesAPlausibleTime) {
    const double ns = addition_ns(100'000);
    EXPECT_GT(ns, 0.05);  // 20 GHz
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
