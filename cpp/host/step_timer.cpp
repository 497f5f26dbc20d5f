// SPDX-License-Identifier: MIT
#include "host/step_timer.hpp"

#include <string>

#include "base/error.hpp"
#include "host/clock.hpp"

namespace dnnsuite::host {

namespace {

std::size_t step_capacity(std::int64_t capacity) {
    if (capacity < 0)
        throw InvalidArgument("capacity of a StepTimer must not be negative, as " + std::to_string(capacity));
    return static_cast<std::size_t>(capacity);
}

}  // namespace

StepTimer::StepTimer(std::int64_t capacity)
    : starts_ns_(step_capacity(capacity)), stops_ns_(starts_ns_.size()), items_(starts_ns_.size()) {}

void StepTimer::start() noexcept { started_ns_ = now_ns(); }

void StepTimer::stop(std::int64_t items) {
    keep(items);
    started_ns_ = -1;
}

void StepTimer::lap(std::int64_t items) { started_ns_ = keep(items); }

void StepTimer::clear() noexcept {
    count_ = 0;
    started_ns_ = -1;
}

std::int64_t StepTimer::keep(std::int64_t items) {
    const std::int64_t now = now_ns();  // first of all: what follows is not part of the step
    if (started_ns_ < 0) throw Error("StepTimer: a step ends that was never begun; call start() first");
    if (count_ == starts_ns_.size())
        throw Error("StepTimer is full: it holds the " + std::to_string(count_) +
                    " steps it was made for; give it a larger capacity or call clear()");
    starts_ns_[count_] = started_ns_;
    stops_ns_[count_] = now;
    items_[count_] = items;
    ++count_;
    return now;
}

}  // namespace dnnsuite::host
