// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace dnnsuite::base {

/// First index of piece `i` when `count` values are cut into `pieces` of equal length, to one value.
constexpr std::size_t edge(std::size_t count, std::size_t pieces, std::size_t i) { return count * i / pieces; }

/// The means of at most `pieces` pieces of equal length, to one value; none of no values.
std::vector<double> means_of_pieces(std::span<const double> values, std::size_t pieces);

/// Distribution of values about their mean.
struct Scatter {
    double mean;
    double squares;  ///< Σ (value − mean)²
    double lag1;     ///< correlation of neighbours; 0 where all values are one
};

/// The scatter of one or more values.
Scatter scatter(std::span<const double> values);

}  // namespace dnnsuite::base
