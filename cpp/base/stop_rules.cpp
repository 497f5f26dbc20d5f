// SPDX-License-Identifier: MIT
#include "base/stop_rules.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/statistics.hpp"
#include "base/summary.hpp"
#include "base/text.hpp"
#include "base/warmup.hpp"

namespace dnnsuite::base {

namespace {

// Means of this many pieces of a random walk have a correlation of neighbours of about 0.95, and less than 0.3 hardly
// once in ten thousand (Dickey and Fuller's distribution of n (1 − ρ)); those of steps that forget within a piece, 0.
constexpr int kPieces = 64;
constexpr double kWalk = 0.3;
constexpr std::size_t kFewest = 40;  // below, a walk and independent values cannot be told apart

double positive(double value, const char* name) {
    if (!(value > 0)) throw InvalidArgument(std::string(name) + " must be positive, not " + std::to_string(value));
    return value;
}

std::int64_t at_least(std::int64_t value, std::int64_t least, const char* name) {
    if (value < least)
        throw InvalidArgument(std::string(name) + " must be at least " + std::to_string(least) + ", not " +
                              std::to_string(value));
    return value;
}

/// Slope and R² of the least-squares line through values over 0, 1, 2, …
std::pair<double, double> line(const std::vector<double>& values) {
    const double n = static_cast<double>(values.size()), middle = (n - 1) / 2;
    double mean = 0;
    for (const double value : values) mean += value / n;
    double products = 0, squares = 0, total = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double x = static_cast<double>(i) - middle, y = values[i] - mean;
        products += x * y;
        squares += x * x;
        total += y * y;
    }
    // Values that differ by rounding only lie on a line.
    return {products / squares, total > 1e-18 * n ? products * products / (squares * total) : 1.0};
}

double plogp(std::int64_t count) {
    const double c = static_cast<double>(count);
    return count > 0 ? c * std::log2(c) : 0;
}

void keep_last(std::vector<double>& values, std::size_t most, double value) {
    if (values.size() == most) values.erase(values.begin());
    values.push_back(value);
}

}  // namespace

std::string unsettled(const std::vector<double>& seconds) {
    const Warmup warmup = mser5(seconds);
    if (!warmup.steady) return warmup.reason;
    const auto kept = std::span(seconds).subspan(static_cast<std::size_t>(warmup.truncated));
    if (kept.size() < kFewest)
        return "too short: " + std::to_string(kept.size()) + " samples after warm-up, " + std::to_string(kFewest) +
               " are needed";
    const Trend direction = trend(kept);
    if (direction.drifting) return "drifting by " + percent(direction.slope_per_100) + " in 100 samples";
    if (const double lag1 = piece_means(kept, kPieces, 0.95).lag1; lag1 > kWalk)
        return "wandering: neighbouring means correlate by " + percent(lag1);
    return "";
}

double relative_half_width(const std::vector<double>& seconds) {
    if (seconds.size() < 20) return kNaN;
    const auto kept = std::span(seconds).subspan(static_cast<std::size_t>(mser5(seconds).truncated));
    const Interval interval = piece_means(kept, 10, 0.95);
    return interval.half_width / interval.mean;
}

StopRule::StopRule(double budget_s) : budget_s_(positive(budget_s, "budget_s")) {}

Status StopRule::add(double seconds, double elapsed_s) {
    if (!(std::isfinite(seconds) && seconds > 0))
        throw InvalidArgument("a sample takes a positive, finite time, not " + std::to_string(seconds) + " s");
    if (status_ != Status::kRunning) throw Error("the measurement has ended: " + reason_);
    seconds_.push_back(seconds);
    total_s_ += seconds;
    judge();
    if (status_ == Status::kRunning && elapsed_s >= budget_s_)
        end(Status::kTimeout, "the time is up after " + std::to_string(seconds_.size()) + " samples");
    return status_;
}

void StopRule::end(Status status, std::string reason) {
    status_ = status;
    reason_ = std::move(reason);
}

Fixed::Fixed(std::int64_t samples, double target, double budget_s)
    : StopRule(budget_s), samples_(at_least(samples, 1, "samples")), target_(positive(target, "target")) {}

void Fixed::judge() {
    if (std::ssize(seconds()) < samples_) return;
    const double width = relative_half_width(seconds());
    const std::string known = "the mean is known to " + percent(width);
    const std::string why_not = unsettled(seconds());
    if (why_not.empty() && width > target_)
        end(Status::kNoisy, known + ", not to " + percent(target_));
    else
        end(why_not.empty() ? Status::kConverged : Status::kNoisy, why_not.empty() ? known : why_not);
}

StdRel::StdRel(double max_noise, std::int64_t min_samples, double min_time_s, double budget_s)
    : StopRule(budget_s), max_noise_(positive(max_noise, "max_noise")), min_time_s_(min_time_s),
      min_samples_(at_least(min_samples, static_cast<std::int64_t>(kFewest), "min_samples")) {}

void StdRel::judge() {
    const double value = seconds().back(), before = value - mean_;
    ++count_;
    mean_ += before / static_cast<double>(count_);
    squares_ += before * (value - mean_);
    if (count_ < 2) return;
    const double noise = std::sqrt(squares_ / static_cast<double>(count_ - 1)) / mean_;
    keep_last(noise_, 512, noise);
    if (count_ < min_samples_ || total_s() < min_time_s_) return;
    if (count_ % 16 != 0 && count_ != min_samples_) return;
    if (noise < max_noise_) {
        if (unsettled(seconds()).empty()) end(Status::kConverged, "the samples differ by " + percent(noise));
    } else if (noise_.size() > 64) {
        const Summary spread = summarise(noise_);
        if (spread.cv < 0.05)
            end(Status::kNoisy, "the samples differ by " + percent(noise) + ", and more of them would not change that");
    }
}

Entropy::Entropy(double max_angle_deg, double min_r2, double resolution, double budget_s)
    : StopRule(budget_s), max_angle_deg_(positive(max_angle_deg, "max_angle_deg")), min_r2_(min_r2),
      resolution_(positive(resolution, "resolution")) {
    if (!(min_r2 >= 0 && min_r2 <= 1))
        throw InvalidArgument("min_r2 lies between 0 and 1, not at " + std::to_string(min_r2));
}

void Entropy::judge() {
    constexpr double kDegrees = 180 / 3.14159265358979323846;
    const double bin = std::floor(seconds().back() / (seconds().front() * resolution_));
    std::int64_t& frequency = frequencies_[static_cast<std::int64_t>(std::min(bin, 9e18))];
    plogs_ += plogp(frequency + 1) - plogp(frequency);
    ++frequency;
    const double n = static_cast<double>(seconds().size());
    keep_last(entropies_, 299, std::log2(n) - plogs_ / n);
    if (seconds().size() % 16 != 0 || seconds().size() < kFewest) return;
    const auto [slope, fit] = line(entropies_);
    const double angle = std::atan(slope) * kDegrees;
    if (angle <= max_angle_deg_ && fit >= min_r2_ && unsettled(seconds()).empty())
        end(Status::kConverged, "more samples tell nothing new");
}

Precision::Precision(double target, std::int64_t first, double budget_s)
    : StopRule(budget_s), target_(positive(target, "target")),
      next_(at_least(first, static_cast<std::int64_t>(kFewest), "first")) {}

void Precision::judge() {
    if (std::ssize(seconds()) < next_) return;
    next_ *= 2;
    const double width = relative_half_width(seconds());
    const std::string why_not = unsettled(seconds());
    if (why_not.empty() && width <= target_) return end(Status::kConverged, "the mean is known to " + percent(width));
    ++looks_;
    // A half-width from 10 batches is itself uncertain by a quarter: one that fails to shrink once proves nothing.
    if (looks_ > 4 && width > 0.9 * earlier_[1] && earlier_[1] > 0.9 * earlier_[0])
        return end(Status::kNoisy, "the mean is known to " + percent(width) + ", and more samples do not help" +
                                       (why_not.empty() ? "" : ": " + why_not));
    earlier_ = {earlier_[1], width};
}

}  // namespace dnnsuite::base
