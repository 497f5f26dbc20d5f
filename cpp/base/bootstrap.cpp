// SPDX-License-Identifier: MIT
#include "base/bootstrap.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "base/error.hpp"
#include "base/statistics.hpp"
#include "base/summary.hpp"
#include "base/text.hpp"

namespace dnnsuite::base {

namespace {

using Runs = std::vector<std::vector<double>>;
using Random = std::mt19937_64;  // the standard fixes its output, unlike that of the distributions

std::size_t below(Random& random, std::size_t bound) {
    return static_cast<std::size_t>(static_cast<double>(random() >> 11) * 0x1p-53 * static_cast<double>(bound));
}

double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
}

/// Mean over the runs of the mean over their blocks; without the run, or the block of an only run, `left_out`.
double estimate(const Runs& runs, std::size_t left_out = std::numeric_limits<std::size_t>::max()) {
    if (runs.size() == 1) {
        std::vector<double> blocks = runs[0];
        if (left_out < blocks.size()) blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(left_out));
        return mean(blocks);
    }
    std::vector<double> means;
    for (std::size_t i = 0; i < runs.size(); ++i)
        if (i != left_out) means.push_back(mean(runs[i]));
    return mean(means);
}

double resampled(const Runs& runs, Random& random) {
    double sum = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const std::vector<double>& run = runs[below(random, runs.size())];
        double blocks = 0;
        for (std::size_t k = 0; k < run.size(); ++k) blocks += run[below(random, run.size())];
        sum += blocks / static_cast<double>(run.size());
    }
    return sum / static_cast<double>(runs.size());
}

double normal_below(double z) { return std::erfc(-z / std::sqrt(2.0)) / 2; }

/// z with normal_below(z) = share, for 0 < share < 1, by bisection.
double normal_quantile(double share) {
    double low = -40, high = 40;
    for (int i = 0; i < 80; ++i) {
        const double middle = (low + high) / 2;
        (normal_below(middle) < share ? low : high) = middle;
    }
    return (low + high) / 2;
}

std::size_t units(const Runs& runs) { return runs.size() == 1 ? runs[0].size() : runs.size(); }

/// Adds the squares and cubes of the influences of one side, by leaving out one unit at a time.
void add_influences(const Runs& runs, const std::function<double(double)>& statistic, double& squares, double& cubes) {
    const std::size_t n = units(runs);
    if (n < 2) return;
    std::vector<double> values;
    for (std::size_t i = 0; i < n; ++i) values.push_back(statistic(estimate(runs, i)));
    const double centre = mean(values), count = static_cast<double>(n);
    for (const double value : values) {
        const double influence = (count - 1) * (centre - value) / count;
        squares += influence * influence;
        cubes += influence * influence * influence;
    }
}

void check(const Runs& runs, int resamples, double confidence) {
    if (resamples < 100) throw InvalidArgument("resamples=" + std::to_string(resamples) + ": at least 100 are needed");
    if (!(confidence > 0 && confidence < 1))
        throw InvalidArgument("confidence must lie between 0 and 1, not " + std::to_string(confidence));
    if (std::any_of(runs.begin(), runs.end(), [](const auto& run) { return run.empty(); }))
        throw InvalidArgument("a run has no blocks");
}

/// The interval of `value` from what resampling gave, and the squares and cubes of all influences.
Bootstrap interval(double value, std::vector<double> drawn, int runs, double squares, double cubes, double confidence) {
    double tails[] = {(1 - confidence) / 2, (1 + confidence) / 2};
    double less = 0;
    for (const double one : drawn) less += one < value ? 1 : one == value ? 0.5 : 0;
    const double share = less / static_cast<double>(drawn.size());
    const double acceleration = cubes / (6 * std::pow(squares, 1.5));  // no number where a power is 0 or too large
    const bool corrected = share > 0 && share < 1 && squares > 0 && std::isfinite(acceleration);
    if (corrected) {
        const double bias = normal_quantile(share);
        for (double& tail : tails) {
            const double z = bias + normal_quantile(tail);
            tail = normal_below(bias + z / (1 - acceleration * z));
        }
    }
    return {value, quantile(drawn, tails[0]), quantile(drawn, tails[1]), runs, corrected ? "BCa" : "percentile"};
}

constexpr std::size_t kFew = 20;

/// Mean and squared standard error of one side's units: means of runs, or blocks of an only run.
struct Few {
    double mean, variance, degrees;
};

Few few(const Runs& runs) {
    RunningStatistics spread;
    if (runs.size() == 1)
        for (const double block : runs[0]) spread.add(block);
    else
        for (const std::vector<double>& run : runs) spread.add(mean(run));
    const double count = static_cast<double>(spread.count());
    return {spread.mean(), spread.variance() / count, count - 1};
}

Bootstrap by_t(const Few& side, int runs, double confidence) {
    const double half = student_t(confidence, side.degrees) * std::sqrt(side.variance);
    return {side.mean, side.mean - half, side.mean + half, runs, "t"};
}

/// Welch's t of the difference of the logarithms, whose errors are relative ones; for means that are positive.
Bootstrap ratio_by_t(const Few& above, const Few& beneath, int runs, double confidence) {
    const double first = above.variance / (above.mean * above.mean);
    const double second = beneath.variance / (beneath.mean * beneath.mean), error = first + second;
    const double ratio = above.mean / beneath.mean;
    if (!(error > 0)) return {ratio, ratio, ratio, runs, "t"};
    const double degrees = error * error / (first * first / above.degrees + second * second / beneath.degrees);
    const double half = student_t(confidence, degrees) * std::sqrt(error);
    return {ratio, ratio * std::exp(-half), ratio * std::exp(half), runs, "t"};
}

}  // namespace

Bootstrap bootstrap_mean(const Runs& runs, int resamples, double confidence, std::uint64_t seed) {
    check(runs, resamples, confidence);
    if (runs.empty()) return {kNaN, kNaN, kNaN, 0, "percentile"};
    const double value = estimate(runs);
    const int count = static_cast<int>(runs.size());
    if (units(runs) < 2) return {value, kNaN, kNaN, count, "percentile"};
    if (units(runs) < kFew) return by_t(few(runs), count, confidence);
    Random random(seed);
    std::vector<double> drawn;
    for (int i = 0; i < resamples; ++i) drawn.push_back(resampled(runs, random));
    double squares = 0, cubes = 0;
    add_influences(runs, [](double mean_value) { return mean_value; }, squares, cubes);
    return interval(value, std::move(drawn), count, squares, cubes, confidence);
}

Bootstrap bootstrap_ratio(const Runs& numerator, const Runs& denominator, int resamples, double confidence,
                          std::uint64_t seed) {
    check(numerator, resamples, confidence);
    check(denominator, resamples, confidence);
    if (numerator.empty() || denominator.empty()) return {kNaN, kNaN, kNaN, 0, "percentile"};
    const double above = estimate(numerator), beneath = estimate(denominator);
    const int count = static_cast<int>(std::min(numerator.size(), denominator.size()));
    if (units(numerator) < 2 || units(denominator) < 2) return {above / beneath, kNaN, kNaN, count, "percentile"};
    if (std::min(units(numerator), units(denominator)) < kFew && above > 0 && beneath > 0)
        return ratio_by_t(few(numerator), few(denominator), count, confidence);
    Random random(seed);
    std::vector<double> drawn;
    for (int i = 0; i < resamples; ++i) {
        const double top = resampled(numerator, random);
        drawn.push_back(top / resampled(denominator, random));
    }
    double squares = 0, cubes = 0;
    add_influences(numerator, [beneath](double top) { return top / beneath; }, squares, cubes);
    add_influences(denominator, [above](double bottom) { return above / bottom; }, squares, cubes);
    return interval(above / beneath, std::move(drawn), count, squares, cubes, confidence);
}

}  // namespace dnnsuite::base
