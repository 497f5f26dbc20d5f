// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace dnnsuite::host {

/// Nested, named intervals of any thread, in memory that is set aside (and touched) beforehand.
///
/// A reading costs the clock, a few stores and one atomic addition: no lock, no allocation. Spans nest within their
/// thread, and end in the thread in which they began. When the room is used up, later spans are counted in `dropped`
/// and not kept; nesting stays right. All functions may be called by several threads at once.
///
/// A process that is forked starts with no spans; those that were open at the fork are the parent's alone.
class Spans {
  public:
    /// Columns of the spans that have ended, in the order in which they began.
    struct Columns {
        std::vector<std::int64_t> slot;  ///< position in the memory, by which others (GPU events) know the span
        std::vector<std::int32_t> name;  ///< as `add_name` gave it
        std::vector<std::int64_t> step;
        std::vector<std::int32_t> depth;   ///< 0 where no span of the thread was around it
        std::vector<std::int32_t> thread;  ///< the kernel's id of the thread
        std::vector<std::int64_t> t0_ns;
        std::vector<std::int64_t> t1_ns;
    };

    static constexpr std::int64_t kNotKept = -1;  ///< instead of a slot
    static constexpr std::int32_t kDeepest = 64;  ///< spans nested deeper than this are dropped

    /// Room for `capacity` spans. Throws InvalidArgument when negative.
    explicit Spans(std::int64_t capacity);
    ~Spans();
    Spans(const Spans&) = delete;
    Spans& operator=(const Spans&) = delete;

    /// The number of a name, which is given to it at its first call. Takes a lock: not for the hot path.
    std::int32_t add_name(const std::string& name);
    std::vector<std::string> names() const;

    /// A span begins; returns its slot, or kNotKept.
    std::int64_t begin(std::int32_t name) noexcept;
    /// The innermost span of this thread ends; returns its slot, or kNotKept. Throws Error where none is open, or
    /// when the innermost is not `name`.
    std::int64_t end(std::int32_t name);

    /// The step that spans are of from now on, in any thread.
    void set_step(std::int64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
    std::int64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }

    std::int64_t capacity() const noexcept { return static_cast<std::int64_t>(records_.size()); }
    /// Spans kept so far, those still open included.
    std::int64_t count() const noexcept;
    /// Spans that were not kept, for want of room or for their depth.
    std::int64_t dropped() const noexcept;
    /// Spans begun and not ended, kept or not.
    std::int64_t open() const noexcept { return open_.load(std::memory_order_relaxed); }

    Columns columns() const;
    /// Forgets all spans. Throws Error while one is open.
    void clear();

  private:
    struct Record {
        std::int64_t step, t0_ns, t1_ns;  // t1_ns 0: still open; written last, read first
        std::int32_t name, depth, thread;
    };

    static void forget_all_after_fork() noexcept;
    void forget() noexcept;

    std::vector<Record> records_;
    std::atomic<std::int64_t> next_{0};      // may pass the capacity
    std::atomic<std::int64_t> too_deep_{0};  // dropped for their depth
    std::atomic<std::int64_t> open_{0};
    std::atomic<std::int64_t> step_{0};
    const std::uint64_t id_;  // unlike an address, never used again
    mutable std::mutex names_mutex_;
    std::vector<std::string> names_;
};

}  // namespace dnnsuite::host
