// SPDX-License-Identifier: MIT
#include "base/pieces.hpp"

#include <algorithm>
#include <numeric>

namespace dnnsuite::base {

namespace {

double sum(std::span<const double> values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

std::vector<double> means_of_pieces(std::span<const double> values, std::size_t pieces) {
    const std::size_t count = std::min(values.size(), pieces);
    std::vector<double> means;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t begin = edge(values.size(), count, i), end = edge(values.size(), count, i + 1);
        means.push_back(sum(values.subspan(begin, end - begin)) / static_cast<double>(end - begin));
    }
    return means;
}

Scatter scatter(std::span<const double> values) {
    const double centre = sum(values) / static_cast<double>(values.size());
    double squares = 0, products = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        squares += (values[i] - centre) * (values[i] - centre);
        if (i > 0) products += (values[i] - centre) * (values[i - 1] - centre);
    }
    return {centre, squares, squares > 0 ? products / squares : 0};
}

}  // namespace dnnsuite::base
