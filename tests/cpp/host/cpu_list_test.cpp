// SPDX-License-Identifier: MIT
#include "host/cpu_list.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace dnnsuite::host {
namespace {

TEST(CpuList, BothWays) {
    for (const char* text : {"", "0", "0-3,8", "1,3,5-6", "65535"})
        EXPECT_EQ(format_cpu_list(parse_cpu_list(text)), text);
    EXPECT_EQ(parse_cpu_list("8,0-2,1"), (std::vector<int>{0, 1, 2, 8}));
    EXPECT_EQ(format_cpu_list({3, 1, 2, 2}), "1-3");
    EXPECT_EQ(format_cpu_list({0, 1}), "0-1");
}

TEST(CpuList, NothingElse) {
    for (const char* text : {"a", "1-", "-1", "1,", ",1", "3-1", "0-4000000000", "1 2", "1--2", "0x1", "65536", " 1"})
        EXPECT_THROW(parse_cpu_list(text), InvalidArgument) << text;
    EXPECT_THROW(format_cpu_list({-1}), InvalidArgument);
}

}  // namespace
}  // namespace dnnsuite::host
