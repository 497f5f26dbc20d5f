// SPDX-License-Identifier: MIT
#include "base/series_error.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/pieces.hpp"
#include "base/statistics.hpp"
#include "base/text.hpp"

namespace dnnsuite::base {

namespace {

constexpr std::size_t kMostPieces = 64;
constexpr double kFewestEffective = 10;
constexpr double kDoubt = 1.5;  // standard errors of the correlation that a series must bear
constexpr double kMore = 0.8;   // and that its interval is widened by

double effective_count(double count, double correlation) { return count * (1 - correlation) / (1 + correlation); }

SeriesError plain(std::span<const double> values, std::string why) {
    const double n = static_cast<double>(values.size());
    if (values.size() < 2) return {kNaN, kNaN, n, std::move(why)};
    return {scatter(values).squares / (n - 1) / n, n - 1, n, std::move(why)};
}

}  // namespace

SeriesError series_error(std::span<const double> values, std::size_t fewest) {
    std::string why;
    if (values.size() < fewest)
        why = "too short: " + std::to_string(values.size()) + " values, and " + std::to_string(fewest) +
              " show how neighbours correlate";
    if (values.size() < kFewestOfSeries) return plain(values, std::move(why));
    const std::vector<double> parts = means_of_pieces(values, kMostPieces);
    const double n = static_cast<double>(parts.size());
    const auto [centre, squares, lag1] = scatter(parts);
    const double correlation = lag1 + (1 + 3 * std::max(lag1, 0.0)) / n;
    const double deviation = std::sqrt(std::max(1 - correlation * correlation, 0.05) / n);
    const auto at_most = [&](double deviations) {
        return effective_count(n, std::clamp(correlation + deviations * deviation, 0.0, 0.999));
    };
    if (why.empty() && at_most(kDoubt) < kFewestEffective)
        why = "too short: neighbours correlate by " + percent(std::clamp(correlation, 0.0, 1.0)) +
              ", so that too few values are independent";
    if (lag1 <= 1 / std::sqrt(n) - 1 / n) return {squares / (n - 1) / n, n - 1, n, std::move(why)};
    // What is given looks less correlated than it is: most of one deviation more makes up for that.
    const double effective = at_most(kMore);
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
