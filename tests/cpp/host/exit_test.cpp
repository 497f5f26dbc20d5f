// SPDX-License-Identifier: MIT
#include "host/exit.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace dnnsuite::host {

TEST(ExitDeathTest, LeavesWithItsStatusAndFlushesButRunsNothingThatWasRegisteredBefore) {
    EXPECT_EXIT(
        {
            std::atexit([] { std::abort(); });
            std::setvbuf(stderr, nullptr, _IOFBF, 1 << 12);
            std::fputs("written", stderr);
            if (exit_without_destructors()) std::exit(7);
        },
        testing::ExitedWithCode(7), "written");
}

}  // namespace dnnsuite::host
