// SPDX-License-Identifier: MIT
#include "base/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/pieces.hpp"
#include "base/series_error.hpp"
#include "base/text.hpp"

namespace dnnsuite::base {

namespace {

/// Continued fraction of the incomplete beta function (DLMF 8.17.22), by the modified Lentz method.
double beta_fraction(double a, double b, double x) {
    constexpr double tiny = 1e-300;
    const auto away_from_zero = [](double value) { return std::abs(value) < tiny ? tiny : value; };
    double c = 1;
    double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
    double fraction = d;
    for (int m = 1; m <= 100'000; ++m) {  // converges in O(√max(a, b)) terms
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        d = 1 / away_from_zero(1 + even * d);
        c = away_from_zero(1 + even / c);
        fraction *= d * c;
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / away_from_zero(1 + odd * d);
        c = away_from_zero(1 + odd / c);
        fraction *= d * c;
        if (std::abs(d * c - 1) < 1e-15) break;
    }
    return fraction;
}

/// Regularised incomplete beta function I_x(a, b). `y` is 1 − x, given apart so that it does not cancel.
double incomplete_beta(double a, double b, double x, double y) {
    if (x <= 0) return 0;
    if (y <= 0) return 1;
    const double front =
        std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log(y));
    if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
    return 1 - front * beta_fraction(b, a, y) / b;
}

/// P(|T| > t) for Student's t.
double outside(double t, double degrees) {
    const double sum = degrees + t * t;
    return incomplete_beta(degrees / 2, 0.5, degrees / sum, t * t / sum);
}

double density(double t, double degrees) {
    const double scale = std::lgamma((degrees + 1) / 2) - std::lgamma(degrees / 2);
    return std::exp(scale - (degrees + 1) / 2 * std::log1p(t * t / degrees)) /
           std::sqrt(degrees * 3.14159265358979323846);
}

void check_confidence(double confidence) {
    if (!(confidence > 0 && confidence < 1))
        throw InvalidArgument("confidence must lie between 0 and 1, not " + std::to_string(confidence));
}

void check_batches(int batches, std::size_t count) {
    if (count > 0 && batches < (count > 1 ? 2 : 1))
        throw InvalidArgument("an interval needs at least 2 batches, not " + std::to_string(batches));
}

/// The interval around `mean` that the batches' own means allow.
Interval around(double mean, const std::vector<double>& means, double confidence) {
    const int batches = static_cast<int>(means.size());
    Interval result{mean, kNaN, kNaN, kNaN, batches, kNaN, ""};
    if (batches < 2) return result;
    const Scatter spread = scatter(means);
    result.half_width = student_t(confidence, batches - 1) * std::sqrt(spread.squares / (batches - 1) / batches);
    result.low = mean - result.half_width;
    result.high = mean + result.half_width;
    if (batches > 2) result.lag1 = spread.lag1;
    return result;
}

/// Factor by which the scatter of positive values is likely seen too small: that of a log-normal distribution with the
/// scatter of their logarithms, which a few values show better than the values themselves. Less of many values.
double unseen_tail(std::span<const double> values, double mean) {
    RunningStatistics plain, logs;
    for (const double value : values) {
        plain.add(value);
        logs.add(std::log(value));
    }
    if (!(plain.variance() > 0)) return 1;
    const double expected = std::expm1(logs.variance()) * mean * mean;
    const double most = 1 + 3 / std::sqrt(static_cast<double>(values.size()));
    return std::clamp(std::sqrt(expected / plain.variance()), 1.0, most);
}

/// The interval of `found`'s mean by another error than that of its batches; on a logarithmic scale for values that are
/// all positive, unless they might be negative.
void widen(Interval& found, const SeriesError& error, double confidence, std::span<const double> values,
           bool may_be_negative) {
    found.why = error.why;
    if (std::isnan(error.variance) || std::isnan(found.half_width)) return;
    const double half = student_t(confidence, error.degrees) * std::sqrt(error.variance);
    if (may_be_negative || *std::min_element(values.begin(), values.end()) <= 0) {
        found.low = found.mean - half;
        found.high = found.mean + half;
    } else {
        const double share = half * unseen_tail(values, found.mean) / found.mean;
        found.low = found.mean * std::exp(-share);
        found.high = found.mean * std::exp(share);
    }
    found.half_width = (found.high - found.low) / 2;
}

}  // namespace

void RunningStatistics::add(double value) noexcept {
    ++count_;
    const double before = value - mean_;
    mean_ += before / static_cast<double>(count_);
    squares_ += before * (value - mean_);
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
}

void RunningStatistics::merge(const RunningStatistics& other) noexcept {
    if (other.count_ == 0) return;
    if (count_ == 0) {
        *this = other;
        return;
    }
    const double mine = static_cast<double>(count_), theirs = static_cast<double>(other.count_);
    const double apart = other.mean_ - mean_;
    squares_ += other.squares_ + apart * apart * (mine * theirs / (mine + theirs));
    mean_ += apart * (theirs / (mine + theirs));
    count_ += other.count_;
    min_ = std::min(min_, other.min_);
    max_ = std::max(max_, other.max_);
}

double RunningStatistics::mean() const noexcept { return count_ > 0 ? mean_ : kNaN; }
double RunningStatistics::variance() const noexcept {
    return count_ > 1 ? squares_ / static_cast<double>(count_ - 1) : kNaN;
}
double RunningStatistics::min() const noexcept { return count_ > 0 ? min_ : kNaN; }
double RunningStatistics::max() const noexcept { return count_ > 0 ? max_ : kNaN; }

double student_t(double confidence, double degrees) {
    check_confidence(confidence);
    if (!(degrees > 0)) throw InvalidArgument("degrees of freedom must be positive, not " + std::to_string(degrees));
    const double tail = 1 - confidence;
    double low = 0, high = 1;
    while (outside(high, degrees) > tail) {
        low = high;
        high *= 2;
    }
    // Newton's method inside a bracket that every step narrows; bisection where it would leave it.
    double t = (low + high) / 2;
    for (int i = 0; i < 200; ++i) {
        const double error = outside(t, degrees) - tail;
        (error > 0 ? low : high) = t;
        const double newton = t + error / (2 * density(t, degrees));
        const double next = newton > low && newton < high ? newton : (low + high) / 2;
        const bool settled = std::abs(next - t) <= 1e-15 * t;
        t = next;
        if (settled) break;
    }
    return t;
}

Interval batch_means(std::span<const double> values, int batches, double confidence, bool independent,
                     bool may_be_negative) {
    Interval found = piece_means(values, batches, confidence);
    found.count = values.size();
    if (values.empty()) return found;
    if (independent)
        widen(found, runs_error(values), confidence, values, may_be_negative);
    else if (const SeriesError error = series_error(values); values.size() < kFewestOfSeries)
        found.why = error.why;
    else
        widen(found, error, confidence, values, may_be_negative);
    return found;
}

Interval piece_means(std::span<const double> values, int batches, double confidence) {
    check_confidence(confidence);
    check_batches(batches, values.size());
    if (values.empty()) return {kNaN, kNaN, kNaN, kNaN, 0, kNaN, "no values"};
    const double total = std::accumulate(values.begin(), values.end(), 0.0);
    const std::vector<double> means = means_of_pieces(values, static_cast<std::size_t>(batches));
    return around(total / static_cast<double>(values.size()), means, confidence);
}

Interval rate(std::span<const double> items, std::span<const double> seconds, int batches, double confidence) {
    if (items.size() != seconds.size())
        throw InvalidArgument("rate needs as many items as seconds, not " + std::to_string(items.size()) + " and " +
                              std::to_string(seconds.size()));
    check_confidence(confidence);
    check_batches(batches, items.size());
    if (items.empty()) return {kNaN, kNaN, kNaN, kNaN, 0, kNaN, "no values"};
    const std::size_t used = std::min(static_cast<std::size_t>(batches), items.size());
    std::vector<double> seconds_per_item;
    double all_items = 0, all_seconds = 0;
    for (std::size_t i = 0; i < used; ++i) {
        double batch_items = 0, batch_seconds = 0;
        for (std::size_t k = edge(items.size(), used, i); k < edge(items.size(), used, i + 1); ++k) {
            batch_items += items[k];
            batch_seconds += seconds[k];
        }
        seconds_per_item.push_back(batch_seconds / batch_items);
        all_items += batch_items;
        all_seconds += batch_seconds;
    }
    Interval result = around(all_seconds / all_items, seconds_per_item, confidence);
    std::vector<double> of_steps;
    for (std::size_t k = 0; k < items.size(); ++k) of_steps.push_back(seconds[k] / items[k]);
    if (const SeriesError error = series_error(of_steps); items.size() < kFewestOfSeries)
        result.why = error.why;
    else
        widen(result, error, confidence, of_steps, false);
    const double slow = result.high, fast = result.low;  // seconds per item
    result.mean = all_items / all_seconds;
    result.low = 1 / slow;
    result.high = fast > 0 ? 1 / fast : std::isnan(fast) ? kNaN : std::numeric_limits<double>::infinity();
    result.half_width = (result.high - result.low) / 2;
    result.count = items.size();
    return result;
}

std::string Interval::unseen() const {
    constexpr std::size_t kRare = 100, kSeen = 3;  // (1 - 1/n)^(3 n) is 5 %
    if (count == 0 || count >= kSeen * kRare) return "";
    const std::size_t rarest = std::max<std::size_t>(count / kSeen, 1);
    return "a stall rarer than one in " + std::to_string(rarest) + " values may be missing from these " +
           std::to_string(count);
}

}  // namespace dnnsuite::base
