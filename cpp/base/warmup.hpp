// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>

namespace dnnsuite::base {

/// Point from which a series of times is settled.
struct Warmup {
    int truncated;         ///< values to drop from the front; 0 where no truncation was found
    bool steady;           ///< true if one number may summarise the values that are left
    std::string reason;    ///< why, or why not, as a sentence
    double drift_per_100;  ///< relative change per 100 values in what is left (0.01 is 1 %), by least squares
};

/// Finds the end of warm-up by MSER-5 (White, "An Effective Truncation Heuristic for Bias Reduction in
/// Simulation Output", 1997): over means of 5 neighbouring values, the truncation d that minimises
/// Σ (y − ȳ)² / (n − d)², the squared standard error of the mean of what is left.
///
/// The answer is not steady when the minimum lies at the limit of d = n/2, so that the end of the warm-up was
/// not seen; when the mean of what is left differs from that of the last half of the series by more than
/// 0.5 % and more than the noise (the 95 % half-width of the last half, by the differences of neighbouring
/// batches); when there are fewer than 20 values; or when a value is not finite. None of these throws.
Warmup mser5(std::span<const double> values);

}  // namespace dnnsuite::base
