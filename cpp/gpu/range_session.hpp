// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/counter_host.hpp"

namespace dnnsuite::gpu {

struct RangeApi;

enum class RangeMode {
    kSteps,   ///< the caller's ranges, kernels within them run as ever
    kKernels  ///< every kernel a range of its own: one at a time, and replayed for every pass
};

/// Consecutive steps that were counted with one group of metrics, as CUPTI left them.
struct RangeSegment {
    std::size_t group = 0;
    std::size_t first_step = 0;
    std::size_t steps = 0;    ///< whole ones; ranges of later steps are of a step that did not end
    std::size_t dropped = 0;  ///< ranges that found no room
    std::vector<std::uint8_t> image;
};

/// Counters over the steps of a training loop. With several groups of metrics each step, or as many consecutive ones
/// as a group has passes, is counted with the next group: a step is never run again, for it is not the same twice.
///
/// Ranges are called "<step>" or "<step>/<mark>"; the step is that at which the segment began when its passes span
/// several. Steps are numbered over all windows. One thread at a time.
class RangeSession {
  public:
    /// Enables profiling on a CUcontext. `max_ranges` is the room of one segment: it bounds memory, not accuracy.
    /// Throws Unavailable when the GPU or another tool forbids it, InvalidArgument for groups that cannot be collected;
    /// nothing is held after a throw. `api` must outlive the session.
    RangeSession(const RangeApi& api, const CounterHost& host, void* context,
                 std::vector<std::vector<std::string>> groups, RangeMode mode, std::size_t max_ranges);
    ~RangeSession();
    RangeSession(const RangeSession&) = delete;
    RangeSession& operator=(const RangeSession&) = delete;

    /// A window opens, and its first step begins.
    void start();
    /// Ends the current range and begins another within the same step.
    void mark(const std::string& name);
    /// A step has ended, the next begins.
    void step();
    /// The window closes. What was counted since the last step is left out, unless there was no step at all.
    void stop();
    /// Ends profiling; again does nothing. In a child of fork it only forgets.
    void close() noexcept;

    /// Number of consecutive steps over which each group is collected.
    const std::vector<std::size_t>& passes() const noexcept { return passes_; }
    /// Steps that were counted in some but not all passes of their group as a window closed, and so are left out.
    std::size_t steps_left_out() const noexcept { return steps_left_out_; }
    /// Counts since the last call.
    std::vector<RangeSegment> take();

  private:
    enum class State { kIdle, kRunning, kClosed };

    void require(State state, const char* operation) const;
    void begin_segment();
    std::size_t image_bytes() const;  ///< of the current group
    void begin_pass();
    bool end_pass();  ///< whether the segment has all its passes
    void end_segment();
    void push();
    void pop();
    bool is_full() const noexcept;
    void abandon() noexcept;

    const RangeApi& api_;
    const std::vector<std::vector<std::string>> groups_;
    const RangeMode mode_;
    const std::size_t max_ranges_;
    const pid_t owner_;
    void* object_ = nullptr;
    std::vector<std::vector<std::uint8_t>> configs_;
    std::vector<std::size_t> passes_;

    State state_ = State::kIdle;
    std::size_t group_ = 0;
    std::size_t step_ = 0;
    std::size_t steps_in_window_ = 0;
    std::size_t steps_left_out_ = 0;
    std::size_t ranges_ = 0;          ///< begun in this segment
    std::size_t ranges_of_step_ = 0;  ///< begun in the step before
    std::size_t ranges_before_ = 0;   ///< begun in this segment before this step
    bool pushed_ = false;
    bool started_ = false;
    std::string mark_;
    RangeSegment current_;
    std::vector<RangeSegment> done_;
};

}  // namespace dnnsuite::gpu
