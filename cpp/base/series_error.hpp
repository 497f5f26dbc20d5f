// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace dnnsuite::base {

constexpr std::size_t kFewestOfSeries = 20;  ///< values of a series, below which its correlation cannot be seen
constexpr std::size_t kFewestRuns = 6;       ///< independent values, below which two modes look like one too often

/// Squared standard error of a mean, and what it rests on.
struct SeriesError {
    double variance;   ///< of the mean; NaN for fewer than two values
    double degrees;    ///< of freedom, for Student's t
    double effective;  ///< independent values that would tell as much
    std::string why;   ///< why that is too few, as a sentence; empty where it is enough
};

/// The error of the mean of a series whose values may be correlated, as steps of one run are.
///
/// Neighbouring values are averaged into at most 64 pieces; the correlation of neighbouring pieces, corrected for its
/// bias in short series (Kendall 1954), gives the number of independent values that tell as much, as in a
/// first-order autoregression. A correlation that may be none is taken for none. Too short are fewer than 20 values,
/// and series that by one standard error of the correlation could be worth fewer than 10.
SeriesError series_error(std::span<const double> values);

/// As series_error for values that are independent, as means of separate runs are: too few are less than 6, or values
/// whose neighbours are significantly correlated all the same.
SeriesError runs_error(std::span<const double> values);

}  // namespace dnnsuite::base
