// SPDX-License-Identifier: MIT
#include "fused/math/recurrence.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

/// The slope of `f` at `x` by central difference.
double slope(const std::function<double(double)>& f, double x) {
    const double step = 1e-6;
    return (f(x + step) - f(x - step)) / (2 * step);
}

TEST(Recurrence, LstmGradientIsTheSlope) {
    const double x[5] = {0.3, -0.7, 1.1, 0.2, -0.4}, dh = 0.9, dc = -1.3;
    const auto loss = [&](int which, double value) {
        double v[5];
        for (int i = 0; i < 5; ++i) v[i] = i == which ? value : x[i];
        const auto s = lstm_step(v[0], v[1], v[2], v[3], v[4]);
        return dh * s.h + dc * s.c;
    };
    const auto s = lstm_step(x[0], x[1], x[2], x[3], x[4]);
    const auto g = lstm_gradient(s, x[4], dh, dc);
    const double found[5] = {g.i, g.f, g.g, g.o, g.c};
    for (int i = 0; i < 5; ++i)
        EXPECT_NEAR(found[i], slope([&](double value) { return loss(i, value); }, x[i]), 1e-8) << i;
}

TEST(Recurrence, GruGradientIsTheSlope) {
    const double x[6] = {0.3, -0.7, 1.1, 0.2, -0.4, 0.8}, dh = 0.9;  // r, z, x's and the state's part of n, h; hr = 0.1
    const auto loss = [&](int which, double value) {
        double v[6];
        for (int i = 0; i < 6; ++i) v[i] = i == which ? value : x[i];
        return dh * gru_step(v[0], v[1], v[2], 0.1, 0.2, v[3], v[4]).h;
    };
    const auto s = gru_step(x[0], x[1], x[2], 0.1, 0.2, x[3], x[4]);
    const auto g = gru_gradient(s.r, s.z, s.n, x[3], x[4], dh);
    const double found[4] = {g.r, g.z, g.xn, g.hn};
    for (int i = 0; i < 4; ++i)
        EXPECT_NEAR(found[i], slope([&](double value) { return loss(i, value); }, x[i]), 1e-8) << i;
}

TEST(Recurrence, PlainCells) {
    EXPECT_EQ(plain_step<Cell::kRelu>(-2.0), 0.0);
    EXPECT_EQ(plain_step<Cell::kRelu>(2.0), 2.0);
    EXPECT_EQ(plain_gradient<Cell::kRelu>(0.0, 3.0), 0.0);
    EXPECT_EQ(plain_gradient<Cell::kRelu>(2.0, 3.0), 3.0);
    const double h = plain_step<Cell::kTanh>(0.4);
    EXPECT_NEAR(plain_gradient<Cell::kTanh>(h, 1.0), slope([](double x) { return plain_step<Cell::kTanh>(x); }, 0.4),
                1e-9);
}

}  // namespace
}  // namespace dnnsuite::fused::DNNSUITE_ISA
