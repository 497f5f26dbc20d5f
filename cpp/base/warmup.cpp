// SPDX-License-Identifier: MIT
#include "base/warmup.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/statistics.hpp"
#include "base/text.hpp"

namespace dnnsuite::base {

namespace {

constexpr std::size_t kBatch = 5;
constexpr std::size_t kFewestSteps = 4 * kBatch;  // below, half of the batches is one: nothing could be truncated
constexpr double kTolerance = 0.005;              // means closer than this are the same for our purposes
constexpr double kRounding = 1e-12;               // relative spread of a series that differs by rounding only

double mean_of(std::span<const double> values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<double> batched(std::span<const double> values) {
    std::vector<double> means;
    for (std::size_t i = 0; i + kBatch <= values.size(); i += kBatch)
        means.push_back(mean_of(values.subspan(i, kBatch)));
    return means;
}

/// Number of leading batches to drop, at most half of them.
std::size_t truncation(const std::vector<double>& batches) {
    const auto [low, high] = std::minmax_element(batches.begin(), batches.end());
    if (*high - *low <= kRounding * std::abs(*high)) return 0;
    const std::size_t limit = batches.size() / 2;
    RunningStatistics kept;  // grown from the back: kept holds batches[d ...]
    for (std::size_t i = batches.size(); i > limit; --i) kept.add(batches[i - 1]);
    double least = std::numeric_limits<double>::infinity();
    std::size_t best = limit;
    for (std::size_t d = limit + 1; d-- > 0;) {
        if (d < limit) kept.add(batches[d]);
        const double n = static_cast<double>(kept.count());
        const double error = kept.variance() * (n - 1) / (n * n);
        if (error <= least) {  // on a tie the shorter truncation
            least = error;
            best = d;
        }
    }
    return best;
}

/// Least-squares slope of values over 0, 1, 2, …, relative to their mean, for 100 steps.
double drift(std::span<const double> values) {
    const double n = static_cast<double>(values.size()), mean = mean_of(values);
    double slope = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
        slope += (static_cast<double>(i) - (n - 1) / 2) * (values[i] - mean);
    slope *= 12 / (n * (n * n - 1));
    return slope == 0 ? 0 : 100 * slope / std::abs(mean);
}

/// Half-width of the 95 % interval of the mean of `values`, of which there are at least 10.
///
/// From the differences of neighbouring batch means (von Neumann's estimate of their variance): unlike the
/// spread around their mean it is not blown up by the very drift or step it is to be compared with.
double noise(std::span<const double> values) {
    constexpr std::size_t pieces = 10;
    double squares = 0, previous = 0;
    for (std::size_t i = 0; i < pieces; ++i) {
        const std::size_t begin = values.size() * i / pieces, end = values.size() * (i + 1) / pieces;
        const double mean = mean_of(values.subspan(begin, end - begin));
        if (i > 0) squares += (mean - previous) * (mean - previous);
        previous = mean;
    }
    return student_t(0.95, pieces - 1) * std::sqrt(squares / (2 * (pieces - 1)) / pieces);
}

}  // namespace

Warmup mser5(std::span<const double> values) {
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    const std::string count = std::to_string(values.size());
    if (!std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); }))
        return {0, false, "a value is not finite", unknown};
    if (values.size() < kFewestSteps)
        return {0, false, "too short: " + count + " values, " + std::to_string(kFewestSteps) + " are needed",
                values.size() > 1 ? drift(values) : unknown};

    const std::vector<double> batches = batched(values);
    const std::size_t dropped_batches = truncation(batches);
    const std::size_t dropped = dropped_batches * kBatch;
    const auto kept = values.subspan(dropped);
    Warmup found{static_cast<int>(dropped), false, "", drift(kept)};
    if (dropped_batches == batches.size() / 2) {
        found.reason = "no steady state: warm-up reaches the middle of " + count + " values";
        return found;
    }
    const auto last_half = values.subspan(values.size() / 2);
    const double settled = mean_of(last_half), scale = std::abs(settled);
    const double difference = std::abs(mean_of(kept) - settled);
    if (difference > std::max(noise(last_half), kTolerance * scale)) {
        found.reason = "no steady state: without warm-up the mean differs from that of the last half by " +
                       percent(difference / scale);
        return found;
    }
    found.steady = true;
    found.reason = "steady after " + std::to_string(dropped) + " of " + count + " values";
    return found;
}

}  // namespace dnnsuite::base
