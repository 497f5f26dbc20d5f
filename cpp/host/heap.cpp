// SPDX-License-Identifier: MIT
#include "host/heap.hpp"

#include <cstdlib>  // defines __GLIBC__ where it applies

#ifdef __GLIBC__
#include <malloc.h>

#include <limits>
#endif

namespace dnnsuite::host {

#ifdef __GLIBC__

bool heap_retain() noexcept {
    bool done = mallopt(M_MMAP_MAX, 0) == 1;
    done &= mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max()) == 1;
    done &= mallopt(M_TOP_PAD, 64 << 20) == 1;
    done &= mallopt(M_ARENA_MAX, 1) == 1;
    return done;
}

bool heap_release() noexcept {
    bool done = mallopt(M_MMAP_MAX, 65536) == 1;  // the defaults of malloc/malloc.c
    done &= mallopt(M_TRIM_THRESHOLD, 128 << 10) == 1;
    done &= mallopt(M_TOP_PAD, 128 << 10) == 1;
    done &= mallopt(M_ARENA_MAX, 0) == 1;  // 0: by the number of CPUs
    malloc_trim(0);
    return done;
}

#else

bool heap_retain() noexcept { return false; }
bool heap_release() noexcept { return false; }

#endif

}  // namespace dnnsuite::host
