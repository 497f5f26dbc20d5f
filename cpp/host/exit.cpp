// SPDX-License-Identifier: MIT
#include "host/exit.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>  // defines __GLIBC__ where it applies

namespace dnnsuite::host {

bool exit_without_destructors() noexcept {
#ifdef __GLIBC__
    // Functions run in the reverse order of their registration: this one, the last, before all of the parent's.
    const auto leave = [](int status, void*) {
        std::fflush(nullptr);
        _exit(status);
    };
    return on_exit(leave, nullptr) == 0;
#else
    return false;
#endif
}

}  // namespace dnnsuite::host
