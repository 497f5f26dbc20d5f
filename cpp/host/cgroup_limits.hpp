// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dnnsuite::host {

/// Limits of a group; an unset one is no limit.
struct Limits {
    std::optional<std::string> cpus = {};        ///< as a list, "0-3,8"
    std::optional<std::string> mems = {};        ///< NUMA nodes whose memory may be used, as a list
    std::optional<long long> memory_bytes = {};  ///< without any swap beside it
    std::optional<double> cpu_quota = {};        ///< CPUs' worth of time, 1.5 say
    std::optional<long long> processes = {};     ///< processes and threads
    bool exclusive = false;  ///< version 2: make the CPUs a partition of their own ("root"); nobody else's then

    /// The controllers that are needed for it.
    std::vector<std::string> controllers() const;
};

/// A limit as it was asked for and as the kernel says it is.
struct AppliedLimit {
    std::string controller, file, wanted, found;
};

/// Writes the limits of `controllers` into the group in `folder` and reads each of them back.
/// Throws CgroupError: LimitRejected, CpusetNotEffective, PartitionInvalid, LimitBelowUsage, ...
std::vector<AppliedLimit> apply_limits(int version, const std::string& folder,
                                       const std::vector<std::string>& controllers, const Limits& limits);

/// Version 1: gives a cpuset without CPUs or nodes those of the group above it; nothing can enter it before.
void inherit_cpuset(const std::string& folder);

}  // namespace dnnsuite::host
