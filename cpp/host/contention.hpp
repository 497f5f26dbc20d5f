// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace dnnsuite::host {

/// Nanoseconds that one addition takes in a chain of `additions`, each of which waits for the one before: one cycle of
/// the core on any processor of today, so that its inverse is the clock, in GHz, as far as this thread has the core to
/// itself. Throws InvalidArgument for less than 1.
double addition_ns(std::int64_t additions);

/// Disturbances of this process so far; counters that only grow.
struct Disturbances {
    std::int64_t t_ns;                  ///< when it was read, on now_ns
    std::int64_t involuntary_switches;  ///< times that a thread of the process was taken off its core
    double steal_s;                     ///< CPU time of the machine that the hypervisor gave to others; NaN if unknown
    double pressure_s;                  ///< time in which some task waited for a CPU (PSI); NaN if unknown
};
Disturbances read_disturbances();

}  // namespace dnnsuite::host
