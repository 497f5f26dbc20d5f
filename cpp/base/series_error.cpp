// SPDX-License-Identifier: MIT
#include "base/series_error.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/statistics.hpp"
#include "base/text.hpp"

namespace dnnsuite::base {

namespace {

constexpr std::size_t kMostPieces = 64;
constexpr double kFewestEffective = 10;

double mean(std::span<const double> values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<double> pieces(std::span<const double> values) {
    const std::size_t count = std::min(values.size(), kMostPieces);
    std::vector<double> means;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t begin = values.size() * i / count, end = values.size() * (i + 1) / count;
        means.push_back(mean(values.subspan(begin, end - begin)));
    }
    return means;
}

struct Scatter {
    double squares;  // Σ (value − mean)²
    double lag1;     // correlation of neighbours; 0 where all values are one
};

Scatter scatter(std::span<const double> values) {
    const double centre = mean(values);
    double squares = 0, products = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        squares += (values[i] - centre) * (values[i] - centre);
        if (i > 0) products += (values[i] - centre) * (values[i - 1] - centre);
    }
    return {squares, squares > 0 ? products / squares : 0};
}

double effective_count(double count, double correlation) { return count * (1 - correlation) / (1 + correlation); }

SeriesError plain(std::span<const double> values, std::string why) {
    const double n = static_cast<double>(values.size());
    if (values.size() < 2) return {kNaN, kNaN, n, std::move(why)};
    return {scatter(values).squares / (n - 1) / n, n - 1, n, std::move(why)};
}

}  // namespace

SeriesError series_error(std::span<const double> values) {
    if (values.size() < kFewestOfSeries)
        return plain(values, "too short: " + std::to_string(values.size()) + " values, and " +
                                 std::to_string(kFewestOfSeries) + " show how neighbours correlate");
    const std::vector<double> parts = pieces(values);
    const double n = static_cast<double>(parts.size());
    const auto [squares, lag1] = scatter(parts);
    const double correlation = lag1 + (1 + 3 * std::max(lag1, 0.0)) / n;
    const double deviation = std::sqrt(std::max(1 - correlation * correlation, 0.05) / n);
    const double worst = std::clamp(correlation + deviation, 0.0, 0.999);
    std::string why;
    if (effective_count(n, worst) < kFewestEffective)
        why = "too short: neighbours correlate by " + percent(std::clamp(correlation, 0.0, 1.0)) +
              ", so that too few values are independent";
    if (lag1 <= 1 / std::sqrt(n) - 1 / n) return {squares / (n - 1) / n, n - 1, n, std::move(why)};
    const double effective = effective_count(n, std::clamp(correlation, 0.0, 0.999));
    // The scatter about a series' own mean is too small by the variance of that mean.
    const double variance = squares / n / std::max(1 - 1 / std::max(effective, 1.001), 0.05);
    return {variance / effective, std::max(effective - 1, 1.0), effective, std::move(why)};
}

SeriesError runs_error(std::span<const double> values) {
    const std::size_t count = values.size();
    std::string why;
    if (count < kFewestRuns) {
        why = "too short: " + std::to_string(count) + " runs, and fewer than " + std::to_string(kFewestRuns) +
              " often show one of two modes";
    } else if (const double lag1 = scatter(values).lag1; lag1 > 2 / std::sqrt(static_cast<double>(count))) {
        why = "too short: neighbouring runs correlate by " + percent(lag1) + ", so they are not independent";
    }
    return plain(values, std::move(why));
}

}  // namespace dnnsuite::base
