// SPDX-License-Identifier: MIT
#include "base/compare.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/series_error.hpp"
#include "base/statistics.hpp"
#include "base/text.hpp"

namespace dnnsuite::base {

namespace {

void check(double threshold, double confidence) {
    if (!(threshold > 0)) throw InvalidArgument("threshold must be positive, not " + std::to_string(threshold));
    if (!(confidence > 0 && confidence < 1))
        throw InvalidArgument("confidence must lie between 0 and 1, not " + std::to_string(confidence));
}

bool timed(std::span<const double> seconds) {
    return std::all_of(seconds.begin(), seconds.end(), [](double s) { return std::isfinite(s) && s > 0; });
}

Comparison unknown(std::size_t blocks, std::string reason) {
    const std::int64_t more = std::max<std::int64_t>(2 - static_cast<std::int64_t>(blocks), 1);
    return {Verdict::kInconclusive, kNaN, kNaN, kNaN, static_cast<std::int64_t>(blocks), more, kNaN, std::move(reason)};
}

/// The verdict on a mean log ratio that is known to ± half_width after `blocks`.
Comparison judged(double effect, double half_width, std::size_t blocks, double threshold) {
    const double low = effect - half_width, high = effect + half_width, delta = std::log1p(threshold);
    Comparison found{Verdict::kInconclusive,
                     std::exp(effect),
                     std::exp(low),
                     std::exp(high),
                     static_cast<std::int64_t>(blocks),
                     0,
                     kNaN,
                     ""};
    const std::string interval = percent_change(std::expm1(low)) + " to " + percent_change(std::expm1(high));
    if ((low > 0 || high < 0) && std::abs(effect) > delta) {
        found.verdict = effect > 0 ? Verdict::kFaster : Verdict::kSlower;
        found.reason = interval + " excludes 0, and the effect is above " + percent_change(threshold);
    } else if (low > -delta && high < delta) {
        found.verdict = Verdict::kSame;
        found.reason = interval + " lies within " + percent_change(threshold) + " of 0";
    } else {
        const double wanted =
            half_width > delta ? delta : std::max(std::abs(std::abs(effect) - delta), 0.05 * delta);  // on the edge
        const double n = static_cast<double>(blocks), needed = std::ceil(n * std::pow(half_width / wanted, 2));
        found.more_blocks = static_cast<std::int64_t>(std::max(std::min(needed, 1e9) - n, 1.0));
        found.reason = interval + " does not decide; about " + std::to_string(found.more_blocks) + " more blocks may";
    }
    return found;
}

/// Share of all choices of signs whose mean is as far from 0 as that of `values`.
double sign_flip(const std::vector<double>& values) {
    const auto sum_with = [&](unsigned signs) {
        double sum = 0;
        for (std::size_t i = 0; i < values.size(); ++i) sum += (signs >> i & 1U) != 0 ? -values[i] : values[i];
        return std::abs(sum);
    };
    const double observed = sum_with(0) * (1 - 1e-12);  // equal up to rounding is equal
    const unsigned choices = 1U << values.size();
    unsigned extreme = 0;
    for (unsigned signs = 0; signs < choices; ++signs) extreme += sum_with(signs) >= observed;
    return static_cast<double>(extreme) / choices;
}

/// A sample that is too short decides nothing, however far from 1 its ratio is.
void refuse_short(Comparison& found, const std::string& why) {
    if (why.empty()) return;
    found.verdict = Verdict::kInconclusive;
    const std::int64_t fewest = static_cast<std::int64_t>(kFewestOfSeries);
    found.more_blocks = std::max({found.more_blocks, fewest - found.blocks, found.blocks});
    found.reason = why + "; about " + std::to_string(found.more_blocks) + " more may decide";
}

/// Two runs are likely to meet one of two modes, and then scatter too little: their intervals decide nothing.
void refuse_two(Comparison& found) {
    if (found.blocks > 2 || found.verdict == Verdict::kInconclusive) return;
    found.verdict = Verdict::kInconclusive;
    found.more_blocks = 1;
    found.reason = "too short: 2 runs often show one of two modes; 1 more may decide";
}

/// One of two samples that have no pairs.
struct Side {
    double mean;  // of the logarithms
    SeriesError error;
};

Side side(std::span<const double> seconds, bool independent) {
    std::vector<double> logs;
    RunningStatistics spread;
    for (const double one : seconds) {
        logs.push_back(std::log(one));
        spread.add(logs.back());
    }
    return {spread.mean(), independent ? runs_error(logs) : series_error(logs, kFewestOfSeries)};
}

}  // namespace

Comparison compare_paired(std::span<const double> baseline_s, std::span<const double> candidate_s, double threshold,
                          double confidence) {
    check(threshold, confidence);
    if (baseline_s.size() != candidate_s.size())
        throw InvalidArgument("pairs need as many times of both, not " + std::to_string(baseline_s.size()) + " and " +
                              std::to_string(candidate_s.size()));
    const std::size_t n = baseline_s.size();
    if (n < 2) return unknown(n, "at least 2 pairs are needed");
    if (!timed(baseline_s) || !timed(candidate_s)) return unknown(n, "a time is not positive and finite");
    std::vector<double> logs;
    RunningStatistics spread;
    for (std::size_t i = 0; i < n; ++i) {
        logs.push_back(std::log(baseline_s[i]) - std::log(candidate_s[i]));
        spread.add(logs.back());
    }
    const SeriesError error = n < kFewestOfSeries ? runs_error(logs) : series_error(logs, kFewestOfSeries);
    const double half_width = student_t(confidence, error.degrees) * std::sqrt(error.variance);
    Comparison found = judged(spread.mean(), half_width, n, threshold);
    if (n >= kFewestOfSeries) refuse_short(found, error.why);
    refuse_two(found);
    if (n < 10) found.p = sign_flip(logs);
    return found;
}

Comparison compare_unpaired(std::span<const double> baseline_s, std::span<const double> candidate_s, double threshold,
                            double confidence, bool independent) {
    check(threshold, confidence);
    const std::size_t n = std::min(baseline_s.size(), candidate_s.size());
    if (n < 2) return unknown(n, "at least 2 times of both are needed");
    if (!timed(baseline_s) || !timed(candidate_s)) return unknown(n, "a time is not positive and finite");
    const Side a = side(baseline_s, independent), b = side(candidate_s, independent);
    const double error = a.error.variance + b.error.variance;
    double half_width = 0;
    if (error > 0) {
        const double degrees = error * error /
                               (a.error.variance * a.error.variance / a.error.degrees +
                                b.error.variance * b.error.variance / b.error.degrees);
        half_width = student_t(confidence, degrees) * std::sqrt(error);
    }
    Comparison found = judged(a.mean - b.mean, half_width, n, threshold);
    if (!independent) refuse_short(found, a.error.why.empty() ? b.error.why : a.error.why);
    refuse_two(found);
    return found;
}

}  // namespace dnnsuite::base
