// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>

namespace dnnsuite::base {

/// Count, mean, variance, minimum and maximum of values seen one at a time, in constant memory.
///
/// Welford's recurrence, and Chan's for merging: the variance does not cancel when the mean is large.
class RunningStatistics {
  public:
    void add(double value) noexcept;
    /// As if every value of `other` had been added too.
    void merge(const RunningStatistics& other) noexcept;

    std::int64_t count() const noexcept { return count_; }
    double mean() const noexcept;      ///< NaN without values
    double variance() const noexcept;  ///< of the sample (n - 1); NaN below two values
    double min() const noexcept;       ///< NaN without values
    double max() const noexcept;       ///< NaN without values

  private:
    std::int64_t count_ = 0;
    double mean_ = 0;
    double squares_ = 0;  // Σ (value − mean)²
    double min_ = std::numeric_limits<double>::infinity();
    double max_ = -std::numeric_limits<double>::infinity();
};

/// An estimate and the interval it is known to.
struct Interval {
    double mean;
    double low;  ///< NaN, as `high` and `half_width`, where fewer than two batches were to be had
    double high;
    double half_width;      ///< (high − low) / 2
    int batches;            ///< batches used: never more than there are values
    double lag1;            ///< correlation of neighbouring batches; above 0.2 the series is too short to trust
    std::string why{};      ///< reason not to rely on the interval, as a sentence; empty if there is none
    std::size_t count = 0;  ///< values that it is of

    /// What so few values cannot have seen, as a sentence: an event that happens once in a hundred of them has to be
    /// looked for in 300, where it is missed in one case of twenty. Empty from 300 values on, and without values.
    std::string unseen() const;
};

/// The value t for which a Student-t variable of `degrees` of freedom lies in [−t, t] with the probability
/// `confidence`. Agrees with scipy to ten digits.
/// Throws InvalidArgument unless 0 < confidence < 1 and degrees > 0.
double student_t(double confidence, double degrees);

/// The mean of a series whose values may be correlated, by non-overlapping batch means and Student's t.
///
/// From 20 values on the error is series_error's; coverage is 93 to 97 % for AR(1) noise up to φ = 0.9 where `why` is
/// empty, which it is not for fewer than 50; `lag1` is that of `batches` neighbouring pieces of equal length (to one value).
/// Shorter ones have the error of these pieces' means. `independent` values, as means of runs are, have that of Student's t
/// over each. Values that are all positive, as times and rates are, have an interval on a logarithmic scale, unless they
/// `may_be_negative`, as differences and logarithms may.
///
/// A short series gives fewer batches, an empty one NaN; neither throws.
/// Throws InvalidArgument unless 0 < confidence < 1 and batches ≥ 2 (or ≥ the number of values, where there
/// are fewer).
Interval batch_means(std::span<const double> values, int batches, double confidence, bool independent = false,
                     bool may_be_negative = false);

/// The mean of a series with the interval of its pieces' means alone, as stop rules look at: it never widens because of
/// a correlation that is itself uncertain.
Interval piece_means(std::span<const double> values, int pieces, double confidence);

/// Items per second of a run: all items / all seconds, which a mean of per-step rates would overstate.
///
/// items[i] were finished in seconds[i]. The interval is that of the time per item by batch means, inverted;
/// it is not symmetric, and its high end is infinite when the time per item is not known to be positive.
/// Throws InvalidArgument for lengths that differ, and as batch_means.
Interval rate(std::span<const double> items, std::span<const double> seconds, int batches, double confidence);

}  // namespace dnnsuite::base
