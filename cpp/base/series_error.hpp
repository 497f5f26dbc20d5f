// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace dnnsuite::base {

constexpr std::size_t kFewestOfSeries = 20;  ///< values of a series, below which its correlation cannot be seen
constexpr std::size_t kFewestShown = 50;     ///< and below which an interval that looks well may not be
constexpr std::size_t kFewestRuns = 6;       ///< independent values, below which two modes look like one too often

/// Squared standard error of a mean, and what it rests on.
struct SeriesError {
    double variance;   ///< of the mean; NaN for fewer than two values
    double degrees;    ///< of freedom, for Student's t
    double effective;  ///< independent pieces that would tell as much
    std::string why;   ///< why that is too few, as a sentence; empty where it is enough
};

/// The error of the mean of a series whose values may be correlated, as steps of one run are.
///
/// Neighbouring values are averaged into at most 128 pieces. The error is the power of the slowest waves (cosines over the
/// series), which is that of the mean where the spectrum is flat: as many waves as the correlation of neighbours lets it be
/// flat over, at least 4, each over what a first-order autoregression of this correlation has there. The correlation is
/// corrected for its bias in short series (Kendall 1954) and taken for higher than it was seen. The slowest wave of all does
/// not count: where it alone has much more power the values drift, and that is too short, as are fewer than `fewest`
/// values. Of fewer than 20 the error is that of
/// independent ones; fewer than 50 of which neighbours seem to correlate by more than 0.5 are too short, too.
SeriesError series_error(std::span<const double> values, std::size_t fewest = kFewestShown);

/// As series_error for values that are independent, as means of separate runs are: too few are less than 6, or values
/// whose neighbours are significantly correlated all the same.
SeriesError runs_error(std::span<const double> values);

}  // namespace dnnsuite::base
