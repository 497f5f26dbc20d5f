// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace dnnsuite::host {

/// Nanoseconds of CLOCK_MONOTONIC: the clock of every sample, the same in C++, in Python
/// (`time.monotonic_ns`) and in all processes of one machine. Not affected by setting the date.
std::int64_t now_ns() noexcept;

}  // namespace dnnsuite::host
