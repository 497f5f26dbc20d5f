// SPDX-License-Identifier: MIT
#include "gpu/driver.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"

namespace dnnsuite::gpu {
namespace {

TEST(Driver, AMachineWithoutOneSaysSo) {
    if (dlopen("libcuda.so.1", RTLD_NOW) != nullptr) {
        GTEST_SKIP() << "this machine has NVIDIA's driver";
    }
    for (void (*const call)() : {&require_driver, &synchronize_devices}) {
        try {
            call();
            FAIL() << "there is no driver";
        } catch (const Unavailable& error) {
            EXPECT_TRUE(error.what_is_missing.starts_with("no NVIDIA driver")) << error.what_is_missing;
            EXPECT_FALSE(error.looked_in.empty());
            EXPECT_FALSE(error.remedy.empty());
        }
    }
}

}  // namespace
}  // namespace dnnsuite::gpu
