// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host/cgroup_limits.hpp"

namespace dnnsuite::host {

/// One folder of a group: its part in one hierarchy, with the controllers that it limits by.
struct Branch {
    int version = 2;
    std::string folder;
    std::vector<std::string> controllers;
};

/// Use of a group so far; empty where the kernel does not count it.
struct GroupCounters {
    std::optional<long long> memory_peak_bytes;  ///< page cache included; version 1 cuts it at the limit
    std::optional<long long> oom_kills;          ///< processes of the group that the kernel killed for memory
    std::optional<long long> oom_here;           ///< version 2: times that the group's own limit was the reason
    std::optional<double> cpu_seconds;
    std::optional<long long> throttled;      ///< periods in which a CPU quota ran out
    std::optional<long long> forks_refused;  ///< by the limit of processes
};

/// A control group in one or more hierarchies, for one run: made, used, counted, killed, removed. Its counters
/// cannot be reset, and kernel 6.18 kills at once what is cloned into a group that was killed before.
///
/// The destructor kills what is inside, waits up to 5 s and removes the folders; it never throws.
class Cgroup {
  public:
    /// Makes the group `name` ([A-Za-z0-9_.-], at most 200) below each folder and limits it.
    /// Throws InvalidArgument for the name, CgroupError otherwise; nothing is left behind then.
    static Cgroup create(const std::vector<Branch>& above, const std::string& name, const Limits& limits);
    /// A group that is there already, left by another process.
    static Cgroup adopt(std::vector<Branch> branches) { return Cgroup(std::move(branches)); }

    Cgroup(Cgroup&& other) noexcept;
    Cgroup& operator=(Cgroup&& other) noexcept;
    ~Cgroup();

    /// Moves a process with all its threads in. Memory it has already stays charged where it was.
    void attach(int process) const;
    /// Processes in the group and below it.
    std::vector<int> processes() const;
    /// Kills all of them with SIGKILL (never this process) and waits for their end. Returns those still there
    /// after `timeout_s`: in an uninterruptible sleep.
    std::vector<int> kill(double timeout_s) const;
    GroupCounters counters() const;
    /// Removes the folders, deepest first. Throws CgroupBusy naming the processes inside.
    void remove();

    const std::vector<Branch>& branches() const noexcept { return branches_; }
    const std::vector<AppliedLimit>& applied() const noexcept { return applied_; }

  private:
    explicit Cgroup(std::vector<Branch> branches) : branches_(std::move(branches)) {}

    std::vector<Branch> branches_;
    std::vector<AppliedLimit> applied_;
};

}  // namespace dnnsuite::host
