// SPDX-License-Identifier: MIT
#include "base/summary.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/statistics.hpp"
#include "base/text.hpp"

namespace dnnsuite::base {

namespace {

double of_sorted(const std::vector<double>& sorted, double q) {
    if (sorted.empty()) return kNaN;
    const double position = q * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(position);
    const std::size_t above = std::min(below + 1, sorted.size() - 1);
    return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

std::vector<double> sorted_copy(std::span<const double> values) {
    std::vector<double> sorted(values.begin(), values.end());
    std::sort(sorted.begin(), sorted.end());
    return sorted;
}

std::vector<double> means_of_pieces(std::span<const double> values, std::size_t most) {
    const std::size_t pieces = std::min(most, values.size());
    std::vector<double> means;
    for (std::size_t i = 0; i < pieces; ++i) {
        const std::size_t begin = values.size() * i / pieces, end = values.size() * (i + 1) / pieces;
        const double sum = std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                           values.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
        means.push_back(sum / static_cast<double>(end - begin));
    }
    return means;
}

}  // namespace

double quantile(std::span<const double> values, double q) {
    if (!(q >= 0 && q <= 1)) throw InvalidArgument("a quantile lies between 0 and 1, not at " + std::to_string(q));
    return of_sorted(sorted_copy(values), q);
}

Summary summarise(std::span<const double> values) {
    RunningStatistics running;
    for (const double value : values) running.add(value);
    const std::vector<double> sorted = sorted_copy(values);
    Summary all{};
    all.count = running.count();
    all.mean = running.mean();
    all.sd = std::sqrt(running.variance());
    all.cv = all.sd / std::abs(all.mean);
    all.median = of_sorted(sorted, 0.5);
    all.p5 = of_sorted(sorted, 0.05);
    all.q1 = of_sorted(sorted, 0.25);
    all.q3 = of_sorted(sorted, 0.75);
    all.p95 = of_sorted(sorted, 0.95);
    std::vector<double> distances;
    const double width = all.q3 - all.q1;
    for (const double value : values) {
        distances.push_back(std::abs(value - all.median));
        const double outside = std::max(all.q1 - value, value - all.q3);
        if (outside > 3 * width)
            ++all.severe;
        else if (outside > 1.5 * width)
            ++all.mild;
    }
    all.mad = quantile(distances, 0.5);
    return all;
}

Trend trend(std::span<const double> values) {
    if (values.size() < 8) return {kNaN, kNaN, false};
    const std::vector<double> means = means_of_pieces(values, 40);
    std::vector<double> slopes;
    std::map<double, double> ties;
    double order = 0;  // Kendall's S
    for (std::size_t i = 0; i < means.size(); ++i) {
        ties[means[i]] += 1;
        for (std::size_t j = i + 1; j < means.size(); ++j) {
            order += means[j] > means[i] ? 1 : means[j] < means[i] ? -1 : 0;
            slopes.push_back((means[j] - means[i]) / static_cast<double>(j - i));
        }
    }
    const auto spread = [](double n) { return n * (n - 1) * (2 * n + 5); };
    const double n = static_cast<double>(means.size());
    double variance = spread(n);
    for (const auto& [value, count] : ties) variance -= spread(count);
    variance /= 18;
    const double z = order == 0 || variance <= 0 ? 0 : (std::abs(order) - 1) / std::sqrt(variance);
    const double per_value = quantile(slopes, 0.5) * n / static_cast<double>(values.size());
    const double middle = std::abs(quantile(values, 0.5));
    const double relative = per_value == 0 ? 0 : per_value / middle;
    const double p = std::erfc(z / std::sqrt(2.0));
    return {100 * relative, p, p < 0.01 && std::abs(relative) * static_cast<double>(values.size()) > 0.005};
}

}  // namespace dnnsuite::base
