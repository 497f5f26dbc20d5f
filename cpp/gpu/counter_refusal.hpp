// SPDX-License-Identifier: MIT
#pragma once

#include "base/error.hpp"

namespace dnnsuite::gpu {

/// Why counters may not be read, and what to do about it.
struct CounterRefusal {
    const char* reason;
    const char* remedy;
};

/// Meaning of one of CUPTI's error numbers for the machine; nullptr for an error of this program.
const CounterRefusal* counter_refusal(int cupti_result) noexcept;

/// The name that CUPTI's headers give an error number, as "CUPTI_ERROR_HARDWARE_BUSY".
const char* cupti_result_name(int cupti_result) noexcept;

/// Error of all functions of counters in a build without CUPTI's headers.
Unavailable built_without_cupti();

}  // namespace dnnsuite::gpu
