// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace dnnsuite::host {

/// One logical CPU that is online. -1 (or "") where the kernel does not tell.
struct TopologyCpu {
    int cpu = 0;
    int core = 0;      ///< lowest CPU of the physical core: equal for SMT siblings
    int package = -1;  ///< socket
    int node = 0;      ///< NUMA node
    int l3 = -1;       ///< lowest CPU that shares the last cache of level 3
    std::string type;  ///< "core", "atom" or "capacity 512" on a machine with several kinds of cores
};

/// One NUMA node.
struct TopologyNode {
    int node = 0;
    long long memory_bytes = 0;
    std::vector<int> distances;  ///< to each node, in ascending order of their numbers; 10 is itself
};

/// One PCI device of class display (03) or accelerator (12).
struct TopologyDevice {
    std::string address;  ///< 0000:3b:00.0
    std::string vendor;   ///< 0x10de
    int node = -1;
    std::string cpus;  ///< the CPUs near it, as a list
};

/// Facts of a machine that a plan of shares needs.
struct Topology {
    std::vector<TopologyCpu> cpus;
    std::vector<TopologyNode> nodes;
    std::vector<TopologyDevice> devices;
    long long memory_bytes = 0;  ///< MemTotal
};

/// Reads /sys and /proc under `root` ("" is this machine; a test gives a folder).
/// A kernel without NUMA has one node 0 with all memory. Throws Error when there are no CPUs to be read.
Topology read_topology(const std::string& root);

}  // namespace dnnsuite::host
