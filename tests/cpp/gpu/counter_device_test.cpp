// SPDX-License-Identifier: MIT
#include "gpu/counter_device.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "gpu/library.hpp"

namespace dnnsuite::gpu {
namespace {

TEST(CounterDevice, IsThereOrSaysWhatHelps) {
    add_library_folder("/usr/local/cuda/lib64");
    try {
        const CounterDevice device(0);
        EXPECT_FALSE(device.chip().empty());
        EXPECT_EQ(device.support().size(), 4U);
    } catch (const Unavailable& missing) {
        EXPECT_FALSE(missing.remedy.empty());
    }
    EXPECT_THROW(CounterDevice(4096), Unavailable);
}

}  // namespace
}  // namespace dnnsuite::gpu
