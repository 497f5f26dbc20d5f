// SPDX-License-Identifier: MIT
#pragma once

#ifdef DNNSUITE_HAS_CUPTI

#include <cupti.h>

#include <cstdint>
#include <span>

#include "gpu/activity_columns.hpp"

namespace dnnsuite::gpu {

/// The records of one buffer as columns, in the buffer's order; a function of the bytes, and of the strings to which
/// they point, alone.
///
/// `walk` is the library's cuptiActivityGetNextRecord: it alone knows how long a record is. Of each record only the
/// fields that the headers know are read, and none that reach beyond the buffer. What cannot be read is counted.
ActivityColumns decode_activity(std::span<std::uint8_t> buffer, decltype(cuptiActivityGetNextRecord)* walk);

}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
