// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

namespace dnnsuite::host {

/// One measurement of memory bandwidth: STREAM's triad, a[i] = b[i] + s * c[i] (McCalpin 1995), on doubles.
struct Bandwidth {
    double best_bytes_per_s;        // of the fastest repeat: what the machine can do
    double median_bytes_per_s;      // of all repeats: what it did do, neighbours and all
    std::int64_t bytes_per_thread;  // of the three arrays together, as rounded
    const char* instruction_set;    // that the loop was compiled for
};

/// Runs the triad on one thread for each entry of `cpus`, bound to that CPU (an entry of -1 is not bound), each on
/// arrays of its own that it touches first, so that on a NUMA machine they lie beside it. `bytes_per_thread` is the
/// size of the three arrays together: choose it below a cache's size to measure that cache. Each of `repeats` begins
/// at a barrier, runs until at least `least_ns` have passed, and counts 24 bytes an element (STREAM's convention: the
/// line that is read only because it is written is not counted).
/// Throws InvalidArgument for no thread, less than 192 bytes or no repeat, and Error when a CPU is refused.
Bandwidth stream_triad(const std::vector<int>& cpus, std::int64_t bytes_per_thread, int repeats, std::int64_t least_ns);

/// Seconds of a fixed piece of arithmetic on this thread, without memory traffic: whoever shares the CPU makes it
/// longer. `iterations` dependent multiply-adds.
struct Spin {
    std::int64_t wall_ns;
    std::int64_t cpu_ns;  // of the thread: what wall has beyond it, the thread was not running
};
Spin spin(std::int64_t iterations) noexcept;

}  // namespace dnnsuite::host
