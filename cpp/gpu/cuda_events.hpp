// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace dnnsuite::gpu {

/// The part of CUDA's runtime that events need. Status 0 is success; a table of other functions stands in for it in
/// tests.
struct EventFunctions {
    using Event = void*;
    using Stream = void*;
    int (*create)(Event*);
    int (*destroy)(Event);
    int (*record)(Event, Stream);
    int (*query)(Event);        ///< 0: over; kNotReady: not yet
    int (*synchronize)(Event);  ///< waits until it is over
    int (*elapsed)(float* milliseconds, Event, Event);

    static constexpr int kNotReady = 600;  // cudaErrorNotReady

    /// Those of libcudart, opened now. Throws Unavailable without a driver, a device or the library.
    static EventFunctions of_the_runtime();
};

/// Pairs of CUDA events around pieces of work, from a pool that is made beforehand, resolved when they happen to be
/// over: recording never waits for the device, and never creates an event. `collect` is where memory may grow, with the results.
///
/// Pairs nest as they are begun in a thread and end in it. May be called by several threads at once. An event resolves
/// about half a microsecond.
class CudaEvents {
  public:
    struct Resolved {
        std::int64_t key;
        std::int64_t gpu_ns;  ///< from the first event of the pair to the second, on the device
    };

    /// A pool of `pairs` pairs. Throws InvalidArgument for less than 1, Unavailable when events cannot be made.
    CudaEvents(const EventFunctions& functions, std::int64_t pairs);
    ~CudaEvents();
    CudaEvents(const CudaEvents&) = delete;
    CudaEvents& operator=(const CudaEvents&) = delete;

    /// The stream that events are recorded in from now on: a cudaStream_t, 0 for the default one.
    void set_stream(std::uintptr_t stream) noexcept;

    /// The piece of work `key` begins; a negative key is ignored. Without a free pair it is counted in `dropped`.
    void begin(std::int64_t key) noexcept;
    /// It ends. Nothing happens for a key that was not begun or was dropped.
    void end(std::int64_t key) noexcept;
    /// Gives the pairs that are over back to the pool, without waiting.
    void collect() noexcept;
    /// Waits for the device, once, and collects all. Pairs that have not ended stay.
    void finish();
    /// Events resolved since the last call, in the order in which they ended.
    std::vector<Resolved> take();

    std::int64_t pending() const;  ///< ended and not yet over on the device
    std::int64_t dropped() const;  ///< without a free pair, or refused by CUDA
    int last_error() const;        ///< CUDA's status of the last refusal, 0 for none

  private:
    struct Pair {
        EventFunctions::Event first = nullptr, second = nullptr;
        std::int64_t key = 0;
    };

    void destroy() noexcept;
    void collect_locked() noexcept;
    void drop(int status) noexcept;

    const EventFunctions functions_;
    mutable std::mutex mutex_;
    // Every pair is in one of the first three, each of which has room for all: nothing is allocated when one moves on.
    std::vector<Pair> free_;
    std::vector<Pair> begun_;
    std::vector<Pair> ended_;  // in the order in which they ended, which on one stream is the device's
    std::vector<Resolved> resolved_;
    EventFunctions::Stream stream_ = nullptr;
    std::int64_t dropped_ = 0;
    int last_error_ = 0;
    const int process_;  // a forked child must not touch the parent's events
};

}  // namespace dnnsuite::gpu
