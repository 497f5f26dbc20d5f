// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <limits>
#include <string>

namespace dnnsuite::base {

/// Meaning of a quantity that its values do not determine.
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A ratio in percent to three digits, such as "2.5 %".
inline std::string percent(double ratio) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g %%", 100 * ratio);
    return text;
}

/// A relative change in percent to three digits, with its sign, such as "+2.5 %".
inline std::string percent_change(double ratio) {
    char text[32];
    std::snprintf(text, sizeof text, "%+.3g %%", 100 * ratio);
    return text;
}

}  // namespace dnnsuite::base
