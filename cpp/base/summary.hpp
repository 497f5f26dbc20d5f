// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>

namespace dnnsuite::base {

/// The value below which the share `q` of the values lies, between neighbours linearly (numpy's default). NaN without
/// values. Throws InvalidArgument unless 0 ≤ q ≤ 1.
double quantile(std::span<const double> values, double q);

/// Centre and spread of a sample. Everything is NaN without values, sd and cv below two.
struct Summary {
    std::int64_t count;
    double mean, sd, cv;  ///< sd of the sample (n − 1); cv: sd / |mean|
    double median, mad;   ///< mad: median of |value − median|
    double p5, q1, q3, p95;
    std::int64_t mild;    ///< beyond Tukey's inner fences, 1.5 (q3 − q1) from the box, but not his outer ones
    std::int64_t severe;  ///< beyond the outer fences, 3 (q3 − q1) from the box; outliers are counted, never dropped
};
Summary summarise(std::span<const double> values);

/// Trend of a series: the test of Mann and Kendall, over at most 40 means of neighbouring values, which
/// are nearly independent where the values are not, and the slope of Theil and Sen.
struct Trend {
    double slope_per_100;  ///< relative to the median, per 100 values: 0.01 is 1 %
    double p;              ///< of so much order or more in a series that goes nowhere; two-sided, normal, with ties
    bool drifting;         ///< p < 0.01, and more than 0.5 % from the first value to the last
};
/// NaN and not drifting below 8 values, where the test has no power.
Trend trend(std::span<const double> values);

}  // namespace dnnsuite::base
