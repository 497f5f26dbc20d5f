// SPDX-License-Identifier: MIT
// Sizes of the processor's caches.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

namespace dnnsuite::fused {

/// Bytes of the last cache that this machine's first core reads through; 0 if the system does not describe it.
inline int64_t described_cache() {
    int64_t bytes = 0;
    for (int index = 0;; ++index) {
        std::ifstream size("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");  // as 32768K
        int64_t kib = 0;
        if (!(size >> kib)) return bytes;
        bytes = std::max(bytes, kib * 1024);
    }
}

/// The same by any means. The C library may add up the caches of a whole socket, of which a core has a part.
inline int64_t last_cache() {
    const int64_t usual = int64_t{32} << 20, described = described_cache();
    if (described > 0) return described;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    const int64_t found = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return found > 0 ? found : usual;
#else
    return usual;
#endif
}

/// True if a stream of this many bytes leaves the caches before it is read again: a quarter of the last level or more,
/// because other reads, and other cores, take a part of it.
inline bool leaves_caches(int64_t bytes) {
    static const int64_t cache = last_cache();
    return bytes >= cache / 4;
}

}  // namespace dnnsuite::fused
