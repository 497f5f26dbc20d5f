// SPDX-License-Identifier: MIT
// Whole machines are read in tests/pin/test_topology.py; here is this one, and what is missing.
#include "host/topology.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.hpp"

namespace dnnsuite::host {
namespace {

TEST(Topology, ThisMachine) {
    const Topology topology = read_topology("");
    EXPECT_EQ(static_cast<long>(topology.cpus.size()), sysconf(_SC_NPROCESSORS_ONLN));
    long long memory_bytes = 0;
    for (const auto& node : topology.nodes) memory_bytes += node.memory_bytes;
    EXPECT_GT(memory_bytes, 0);
    EXPECT_LE(memory_bytes, topology.memory_bytes);  // what a hypervisor adds later may be of no node
    for (const auto& cpu : topology.cpus) EXPECT_LE(cpu.core, cpu.cpu);
}

TEST(Topology, NoMachine) { EXPECT_THROW(read_topology("/nowhere"), Error); }

}  // namespace
}  // namespace dnnsuite::host
