// SPDX-License-Identifier: MIT
#include "host/clock.hpp"

#include <ctime>

namespace dnnsuite::host {

std::int64_t now_ns() noexcept {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);  // cannot fail: the clock and the pointer are valid
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace dnnsuite::host
