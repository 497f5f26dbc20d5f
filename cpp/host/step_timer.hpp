// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dnnsuite::host {

/// Start, end and number of items of each step, in memory that is set aside (and touched) beforehand: a reading
/// costs the clock and three stores, and never an allocation or a page fault.
class StepTimer {
  public:
    /// Room for `capacity` steps. Throws InvalidArgument when negative.
    explicit StepTimer(std::int64_t capacity);

    /// A step begins now. Begins anew when one was begun and not ended.
    void start() noexcept;
    /// The step ends now and is kept. Throws Error without a start, or when the timer is full.
    void stop(std::int64_t items);
    /// The step ends and the next begins at one and the same instant. Throws as stop.
    void lap(std::int64_t items);
    /// Forgets all steps. The memory is kept, so views taken earlier see the steps that follow.
    void clear() noexcept;

    std::int64_t capacity() const noexcept { return static_cast<std::int64_t>(starts_ns_.size()); }
    std::int64_t count() const noexcept { return static_cast<std::int64_t>(count_); }

    /// Views of the steps kept so far; valid as long as the timer lives.
    std::span<const std::int64_t> starts_ns() const noexcept { return {starts_ns_.data(), count_}; }
    std::span<const std::int64_t> stops_ns() const noexcept { return {stops_ns_.data(), count_}; }
    std::span<const std::int64_t> items() const noexcept { return {items_.data(), count_}; }

  private:
    std::int64_t keep(std::int64_t items);

    std::vector<std::int64_t> starts_ns_;
    std::vector<std::int64_t> stops_ns_;
    std::vector<std::int64_t> items_;
    std::size_t count_ = 0;
    std::int64_t started_ns_ = -1;  // -1: no step has begun
};

}  // namespace dnnsuite::host
