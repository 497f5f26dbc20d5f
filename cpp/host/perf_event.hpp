// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dnnsuite::host {

/// A counter of the kernel's perf_event_open(2), by the name we give it.
struct PerfEvent {
    std::string_view name;
    std::uint32_t type;
    std::uint64_t config;
    std::string_view unit;
    std::string_view definition;
};

/// Every event known by name: hardware first, then software.
const std::vector<PerfEvent>& perf_events();

/// Reading of a counter.
struct PerfValue {
    std::uint64_t raw;
    std::uint64_t enabled_ns;  // how long it was meant to count
    std::uint64_t running_ns;  // how long it did: less where more events were asked for than there are counters
    /// raw scaled to the whole of enabled_ns; NaN when it never ran.
    double scaled() const noexcept;
    /// True if it counted part of the time only, so that `scaled` is an estimate.
    bool multiplexed() const noexcept { return running_ns < enabled_ns; }
};

/// A group of counters of one thread: all of them count over the same instants, so that their ratios have a meaning.
/// Counts nothing until enabled. The file descriptors outlive the thread, and so do its counts.
class PerfGroup {
  public:
    /// Counters `names` of the thread `tid` (0: the caller). In user space only where the kernel allows no more.
    /// Throws InvalidArgument for an unknown or an empty list of names, and Unavailable when the kernel refuses: the
    /// message says which event, what the errno means and what would help.
    PerfGroup(int tid, const std::vector<std::string>& names);
    ~PerfGroup();
    PerfGroup(PerfGroup&& other) noexcept;
    PerfGroup(const PerfGroup&) = delete;
    PerfGroup& operator=(const PerfGroup&) = delete;
    PerfGroup& operator=(PerfGroup&&) = delete;

    /// Counting goes on, from where it was.
    void enable();
    void disable();
    /// In the order of `names`. Throws Error when the kernel gives a short answer.
    std::vector<PerfValue> read() const;

    const std::vector<std::string>& names() const noexcept { return names_; }
    /// True if the kernel's own instructions are left out, which perf_event_paranoid asks of us.
    bool user_only() const noexcept { return user_only_; }

  private:
    void control(unsigned long request);
    void close_all() noexcept;

    std::vector<std::string> names_;
    std::vector<int> files_;  // the leader first
    bool user_only_ = false;
};

/// One sentence for what perf_event_open answered, and what would help.
struct PerfRefusal {
    std::string what, remedy;
};
PerfRefusal explain_perf_errno(int error, std::string_view event);

}  // namespace dnnsuite::host
