// SPDX-License-Identifier: MIT
#include "base/series_error.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "base/pieces.hpp"
#include "base/statistics.hpp"
#include "base/text.hpp"

namespace dnnsuite::base {

namespace {

constexpr std::size_t kMostPieces = 128;
constexpr int kFewestWaves = 4;        // degrees of freedom that an interval has at least
constexpr double kMostWaves = 0.2;     // of the pieces
constexpr double kFlat = 0.6;          // a wave counts until the spectrum has fallen to 1 / (1 + kFlat)
constexpr double kForWaves = 1.5;      // standard errors added to the correlation where it decides how many waves count
constexpr double kForFall = 0.8;       // and how much the spectrum falls among them,
constexpr double kStrong = 0.8;        // with as much more for each 1 that it is above this,
constexpr double kForStrong = 5;       // because an estimate that is close to 1 is rough; but not above
constexpr double kHighest = 0.98;      // this, where intervals become as wide as they are of no use
constexpr double kUnclear = 0.5;       // correlation that fewer than kFewestShown values do not show well enough
constexpr int kSlowWaves = 4;          // which count alone
constexpr double kSlowMore = 2.5;      // where they have so many times the power of the faster ones
constexpr double kDriftSurely = 0.98;  // confidence at which the slowest wave of all is a drift

SeriesError plain(std::span<const double> values, std::string why) {
    const double n = static_cast<double>(values.size());
    if (values.size() < 2) return {kNaN, kNaN, n, std::move(why)};
    return {scatter(values).squares / (n - 1) / n, n - 1, n, std::move(why)};
}

/// Correlation of neighbouring pieces, corrected for its bias in short series (Kendall 1954), with its standard error.
struct Correlation {
    double value, deviation;

    double higher(double deviations) const { return std::clamp(value + deviations * deviation, -0.8, kHighest); }
    /// The correlation that power is corrected by: what is not negative is taken for higher than it was seen.
    double careful() const {
        return value < 0 ? higher(0) : higher(kForFall + kForStrong * std::max(value - kStrong, 0.0));
    }
};

Correlation correlation_of(double lag1, double count) {
    const double value = lag1 + (1 + 3 * std::max(lag1, 0.0)) / count;
    return {value, std::sqrt(std::max(1 - value * value, 0.05) / count)};
}

/// Number of waves over which the spectrum of a first-order autoregression is about flat.
double flat_waves(double count, double correlation) {
    return count / std::numbers::pi * std::sqrt(kFlat / std::max(correlation, 1e-9)) * (1 - correlation);
}

/// Power of the slowest `waves` cosines in `parts`, each over what the spectrum of a first-order autoregression with this
/// correlation has there, so that all estimate the power at frequency 0.
std::vector<double> powers(const std::vector<double>& parts, double centre, int waves, double correlation) {
    const double n = static_cast<double>(parts.size()), top = (1 - correlation) * (1 - correlation);
    std::vector<double> found;
    for (int wave = 1; wave <= waves; ++wave) {
        const double step = std::numbers::pi * wave / n;
        double sum = 0;
        for (std::size_t j = 0; j < parts.size(); ++j)
            sum += (parts[j] - centre) * std::cos(step * (static_cast<double>(j) + 0.5));
        const double fallen = top / (top + 2 * correlation * (1 - std::cos(step)));
        found.push_back(2 / n * sum * sum / fallen);
    }
    return found;
}

double mean_of(std::span<const double> values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// True if the slowest wave has so much more power than the others that the values rise or fall all along.
bool drifts(std::span<const double> powers) {
    const double others = mean_of(powers.subspan(1));
    const double t = student_t(kDriftSurely, static_cast<double>(powers.size() - 1));
    return powers.front() > t * t * others;
}

/// The slow waves alone where they have much more power than the faster ones.
std::span<const double> without_fast(std::span<const double> powers) {
    if (powers.size() <= kSlowWaves + 3) return powers;
    const std::span<const double> slow = powers.first(kSlowWaves);
    return mean_of(slow) > kSlowMore * mean_of(powers.subspan(kSlowWaves)) ? slow : powers;
}

}  // namespace

SeriesError series_error(std::span<const double> values, std::size_t fewest) {
    std::string why;
    if (values.size() < fewest)
        why = "too short: " + std::to_string(values.size()) + " values, and " + std::to_string(fewest) +
              " show how neighbours correlate";
    if (values.size() < kFewestOfSeries) return plain(values, std::move(why));
    const std::size_t length = (values.size() + kMostPieces - 1) / kMostPieces;  // the same for all, but for a rest
    const std::vector<double> parts = means_of_pieces(values, values.size() / length);
    const double n = static_cast<double>(parts.size());
    const auto [centre, squares, lag1] = scatter(parts);
    if (!std::isfinite(squares))  // of values that are no numbers, or so large that their squares are none
        return {kNaN, n - 1, n, why.empty() ? "no error: a value is not finite, or too large to be squared" : why};
    if (squares == 0) return {0, n - 1, n, std::move(why)};
    const Correlation seen = correlation_of(lag1, n);
    if (why.empty() && values.size() < kFewestShown && seen.value > kUnclear)
        why = "too short: neighbours correlate by " + percent(seen.value) + ", and " + std::to_string(values.size()) +
              " values do not show how far";
    const double waves = std::clamp(flat_waves(n, seen.higher(kForWaves)), double{kFewestWaves}, kMostWaves * n);
    const std::vector<double> all = powers(parts, centre, 1 + static_cast<int>(waves), seen.careful());
    if (why.empty() && drifts(all)) why = "too short: the values rise or fall all along";
    const std::span<const double> used = without_fast(std::span(all).subspan(1));
    const double variance = mean_of(used) / n;
    const double effective = variance > 0 ? squares / (n - 1) / variance : n;
    return {variance, static_cast<double>(used.size()), effective, std::move(why)};
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
