// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace dnnsuite::base {

enum class Status { kRunning, kConverged, kNoisy, kTimeout };

/// Decides after each sample whether enough were taken.
///
/// A rule ends `converged` only on samples that one number may summarise: steady by MSER-5, without drift by the test of
/// Mann and Kendall, and without the similar neighbours of a random walk, which takes 40 samples after warm-up to see.
/// Otherwise it ends `noisy`, with the reason, or `timeout` when its time is up.
class StopRule {
  public:
    virtual ~StopRule() = default;

    /// Takes in a sample; returns the status after it. `elapsed_s` is the time since the measurement began, which the
    /// budget is for. Throws InvalidArgument for a sample that is not positive and finite, Error when it has ended.
    Status add(double seconds, double elapsed_s);

    Status status() const noexcept { return status_; }
    /// Why it ended, as a sentence; empty while it runs.
    const std::string& reason() const noexcept { return reason_; }
    const std::vector<double>& seconds() const noexcept { return seconds_; }
    /// Sum of the samples.
    double total_s() const noexcept { return total_s_; }

  protected:
    /// Throws InvalidArgument for a budget that is not positive.
    explicit StopRule(double budget_s);
    /// Called after each sample: `end`, or nothing to go on.
    virtual void judge() = 0;
    void end(Status status, std::string reason);

  private:
    std::vector<double> seconds_;
    double total_s_ = 0;
    double budget_s_;
    Status status_ = Status::kRunning;
    std::string reason_;
};

/// Why samples may not be summarised by one number; empty where they may.
std::string unsettled(const std::vector<double>& seconds);

/// Half-width of the 95 % interval of the mean, relative to it, by 10 batch means after warm-up. NaN below 20 values.
double relative_half_width(const std::vector<double>& seconds);

/// A fixed number of samples; converged when the interval is within `target` of the mean as well.
class Fixed final : public StopRule {
  public:
    Fixed(std::int64_t samples, double target, double budget_s);

  private:
    void judge() override;
    std::int64_t samples_;
    double target_;
};

/// nvbench's `stdrel`: ends when the relative standard deviation is below `max_noise`, after `min_samples` and
/// `min_time_s`; or, noisy, when that deviation has itself settled: over more than 64 of its values, looked at every
/// 16 samples, it varies by less than 5 %. Goes on while the samples are not settled, which nvbench does not ask.
class StdRel final : public StopRule {
  public:
    StdRel(double max_noise, std::int64_t min_samples, double min_time_s, double budget_s);

  private:
    void judge() override;
    double max_noise_, min_time_s_;
    std::int64_t min_samples_;
    std::int64_t count_ = 0;
    double mean_ = 0, squares_ = 0;
    std::vector<double> noise_;  // the last 512
};

/// nvbench's `entropy`: ends when the entropy of the distribution of samples grows no more: the line through its last
/// 299 values is flatter than `max_angle_deg` and fits with R² ≥ `min_r2`.
///
/// Goes on while the samples are not settled. Samples are equal to it within `resolution` of the first: by the
/// nanosecond no two would be, and the entropy would only count them.
class Entropy final : public StopRule {
  public:
    Entropy(double max_angle_deg, double min_r2, double resolution, double budget_s);

  private:
    void judge() override;
    double max_angle_deg_, min_r2_, resolution_;
    std::map<std::int64_t, std::int64_t> frequencies_;
    double plogs_ = 0;  // Σ count·log2 count
    std::vector<double> entropies_;
};

/// This package's own: ends when the 95 % interval is within `target` of the mean. Looked at only when the number of
/// samples has doubled, from `first` on, because an interval that is looked at after each sample covers less than it
/// says. Noisy when each of two doublings narrows the interval by less than 10 %, from the fifth look on.
class Precision final : public StopRule {
  public:
    Precision(double target, std::int64_t first, double budget_s);

  private:
    void judge() override;
    double target_;
    std::int64_t next_;
    int looks_ = 0;
    std::array<double, 2> earlier_{std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
};

}  // namespace dnnsuite::base
