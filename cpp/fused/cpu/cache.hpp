// SPDX-License-Identifier: MIT
// Sizes of the processor's caches.
#pragma once

#include <unistd.h>

#include <cstdint>

namespace dnnsuite::fused {

/// True if a stream of this many bytes leaves the caches before it is read again: half of the last level or more, because
/// other reads take a part of it.
inline bool leaves_caches(int64_t bytes) {
    static const int64_t cache = [] {
        const int64_t usual = int64_t{32} << 20;
#if defined(_SC_LEVEL3_CACHE_SIZE)
        const int64_t found = sysconf(_SC_LEVEL3_CACHE_SIZE);
        return found > 0 ? found : usual;
#else
        return usual;
#endif
    }();
    return bytes >= cache / 2;
}

}  // namespace dnnsuite::fused
