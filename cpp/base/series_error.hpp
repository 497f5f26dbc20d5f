// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace dnnsuite::base {

constexpr std::size_t kFewestOfSeries = 20;  ///< least values of a series to estimate its correlation
constexpr std::size_t kFewestShown = 50;     ///< least values of a series to rely on its interval
constexpr std::size_t kFewestRuns = 6;       ///< least independent values to rely on their interval

/// Squared standard error of a mean, and what it rests on.
struct SeriesError {
    double variance;   ///< of the mean; NaN for fewer than two values
    double degrees;    ///< of freedom, for Student's t
    double effective;  ///< equivalent number of independent pieces
    std::string why;   ///< why that is too few, as a sentence; empty where it is enough
};

/// Computes the error of the mean of a series whose values may be correlated, as steps of one run are.
///
/// Neighbouring values are averaged into at most 128 pieces. The error is the mean power of the slowest waves (cosines
/// over the series), which equals that of the mean where the spectrum is flat. At least 4 waves count, and as many as the
/// correlation of neighbours allows; each is divided by its power in a first-order autoregression of this correlation,
/// which is corrected for its bias in short series (Kendall 1954) and taken at the upper end of its range. The slowest
/// wave does not count: if it has much more power than the others the values drift. A series that drifts, or has fewer
/// than `fewest` values, is too short. Fewer than 20 values have the error of independent ones; fewer than 50 whose
/// neighbours seem to correlate by more than 0.5 are too short.
SeriesError series_error(std::span<const double> values, std::size_t fewest = kFewestShown);

/// Computes the error of the mean of independent values, as means of separate runs are. Fewer than 6, or values whose
/// neighbours are significantly correlated all the same, are too few.
SeriesError runs_error(std::span<const double> values);

}  // namespace dnnsuite::base
