// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

namespace dnnsuite::base {

/// An estimate with its interval from resampling.
struct Bootstrap {
    double value, low, high;  ///< low and high NaN where there was nothing to resample
    int runs;                 ///< of the side that has fewer
    const char* method;       ///< "BCa"; "percentile" where its corrections cannot be had; "t" for few
};

/// The mean over runs of the mean over their blocks, by the hierarchical bootstrap: runs are drawn with replacement,
/// then blocks within each (Kalibera and Jones 2013); the interval is corrected for bias and skewness (BCa, Efron
/// 1987). The same seed gives the same bits on every machine. Of fewer than 20 runs any bootstrap is too narrow (95 %
/// cover 66 to 77 % for 2 runs, 90 % for 5): the interval is then that of Student's t over the runs' means, or over the
/// blocks of an only run.
///
/// Throws InvalidArgument for a run without blocks, fewer than 100 resamples, and unless 0 < confidence < 1.
Bootstrap bootstrap_mean(const std::vector<std::vector<double>>& runs, int resamples, double confidence,
                         std::uint64_t seed);
/// The ratio of two such means, numerator over denominator, both resampled; of few runs Welch's t of the logarithms.
Bootstrap bootstrap_ratio(const std::vector<std::vector<double>>& numerator,
                          const std::vector<std::vector<double>>& denominator, int resamples, double confidence,
                          std::uint64_t seed);

}  // namespace dnnsuite::base
