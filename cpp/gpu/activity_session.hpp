// SPDX-License-Identifier: MIT
#pragma once

#ifdef DNNSUITE_HAS_CUPTI

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpu/activity_columns.hpp"
#include "gpu/cupti.hpp"

namespace dnnsuite::gpu {

/// The one tracer of this process. It holds CUPTI's subscriber for as long as it lives, as the lock that CUPTI's
/// clients agree on, and records between start() and stop().
///
/// Not to be called by two threads at once. After fork() it is dead in the child: every call throws Error there.
class ActivitySession {
  public:
    /// Functions of the machine; a test hands in its own.
    struct Machine {
        const CuptiActivityApi& cupti;
        void (*synchronize)();  ///< waits for every device
    };
    /// Takes CUPTI, to record `tables`: kernels, memops, api, overhead, markers, syncs, graphs (whole graphs instead of
    /// their kernels). Throws InvalidArgument for another name, Error when a session is open in this process,
    /// Unavailable when another profiler holds CUPTI or its clock; nothing is held after a throw.
    ActivitySession(Machine machine, const std::vector<std::string>& tables);
    ~ActivitySession();
    ActivitySession(const ActivitySession&) = delete;
    ActivitySession& operator=(const ActivitySession&) = delete;

    /// Waits for the devices and records from then on. Throws Error when recording, and what CUPTI says.
    void start();
    /// Waits for the devices, fetches the records and records no more. Throws Error when not recording.
    void stop();
    /// All records since the last call, in the order of the buffers. Not while recording.
    ActivityColumns take();
    /// Gives CUPTI back; what was not taken is lost. May be repeated.
    void close() noexcept;
    /// close(), and CUPTI leaves the process for good.
    void finish() noexcept;

    /// Records lost since the session began.
    struct Losses {
        std::size_t dropped;   ///< records that CUPTI had no room for
        std::size_t rejected;  ///< buffers that CUPTI asked for and did not get, at the limit of memory
        std::size_t failed;    ///< buffers that could not be decoded for want of memory
    };
    Losses losses() const;
    bool recording() const noexcept { return recording_; }
    /// The last window: from when recording was on to when the devices had done what was launched in it. Zeros before
    /// there was one.
    std::pair<std::int64_t, std::int64_t> window_ns() const noexcept { return {opened_ns_, closed_ns_}; }

  private:
    void require_mine() const;
    void subscribe();
    void unsubscribe() noexcept;
    bool has_our_clock() const;
    std::uint64_t timestamp() const;
    void take_clock();
    void configure();
    void enable();
    void leave_out_noise();
    void disable() noexcept;
    void count_dropped();

    const Machine machine_;
    const std::vector<CUpti_ActivityKind> kinds_;
    CUpti_SubscriberHandle subscriber_ = nullptr;
    std::size_t enabled_ = 0;  ///< the first so many of kinds_ are on
    std::size_t dropped_ = 0;
    Losses before_{};  ///< the process's counts when the session began
    std::int64_t opened_ns_ = 0;
    std::int64_t closed_ns_ = 0;
    bool open_ = false;
    bool recording_ = false;
};

}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
