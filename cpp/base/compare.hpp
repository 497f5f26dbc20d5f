// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace dnnsuite::base {

enum class Verdict { kFaster, kSlower, kSame, kInconclusive };

/// Speed of a candidate over a baseline's, with the verdict.
struct Comparison {
    Verdict verdict;
    double ratio;  ///< speed of the candidate over that of the baseline: above 1 it is faster
    double low, high;
    std::int64_t blocks;       ///< pairs, or values of the smaller side
    std::int64_t more_blocks;  ///< how many more an inconclusive comparison needs, roughly; 0 for the others
    double p;                  ///< by flipping the signs of all pairs, exact; only for fewer than 10 pairs, else NaN
    std::string reason;
};

/// Compares seconds of the same work, block i of one with block i of the other, by the mean of log ratios and
/// Student's t.
///
/// `faster` or `slower` where the interval excludes 1 and the effect exceeds `threshold`; `same` where the interval
/// lies within ±threshold; otherwise `inconclusive`, with about (t·s/δ)² blocks needed in all for an interval of ±δ,
/// the log of the threshold, or the distance of the effect from it where such an interval is there already.
///
/// From 20 pairs on the error is series_error's; fewer are taken for independent, as blocks of A B B A are. Fewer than
/// three pairs, a time that is not positive and finite, and series that are too short are inconclusive.
/// Throws InvalidArgument for lengths that differ, and unless threshold > 0 and 0 < confidence < 1.
Comparison compare_paired(std::span<const double> baseline_s, std::span<const double> candidate_s, double threshold,
                          double confidence);
/// As compare_paired for samples that have no pairs, as of different machines, by Welch's t on the logs. The values of a
/// side are a series, as steps of one run are, and fewer than 20 are too short; or `independent`, as means of separate
/// runs are.
Comparison compare_unpaired(std::span<const double> baseline_s, std::span<const double> candidate_s, double threshold,
                            double confidence, bool independent = false);

}  // namespace dnnsuite::base
