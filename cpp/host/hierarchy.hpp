// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace dnnsuite::host {

/// One tree of control groups that is mounted. A machine may have several: each controller is in one of them.
struct Hierarchy {
    int version = 2;                       ///< of cgroup: 1 or 2
    std::vector<std::string> controllers;  ///< of version 2: what the root of the mount may give to groups below
    std::string mount_point;
    std::string own;  ///< folder of this process's group; empty when it is outside of what is mounted
    bool read_only = false;
};

/// The hierarchies of /proc/self/mountinfo and /proc/self/cgroup under `root` ("" is this machine).
/// Each once, at its first mount that shows this process's group. Version 1 without controllers (systemd's own
/// bookkeeping) is left out.
std::vector<Hierarchy> read_hierarchies(const std::string& root);

/// Processes of the group in `folder`, and of all below it when `below`.
std::vector<int> group_processes(const std::string& folder, bool below);

}  // namespace dnnsuite::host
