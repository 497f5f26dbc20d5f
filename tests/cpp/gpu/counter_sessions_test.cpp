// SPDX-License-Identifier: MIT
// On a GPU that lets its counters be read; elsewhere the device says why, which counter_device_test.cpp looks at.
#include "gpu/counter_sessions.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "gpu/library.hpp"

namespace dnnsuite::gpu {
namespace {

TEST(CounterSessions, CountAndSampleOnAGpu) {
    add_library_folder("/usr/local/cuda/lib64");
    std::shared_ptr<CounterDevice> device;
    try {
        device = std::make_shared<CounterDevice>(0);
        device->availability(Collection::kRanges);
    } catch (const Unavailable& missing) {
        GTEST_SKIP() << missing.what();
    }
    {
        RangeCounters counters(device, {{"sm__cycles_active.avg", "gpu__time_duration.sum"}}, false, 4);
        counters.session().start();
        counters.session().step();
        counters.session().stop();
        EXPECT_EQ(counters.session().take().size(), 1U);
    }
    SampledCounters sampled(device, {"sm__cycles_active.avg"}, 1'000'000, device->chip() == "GA100", true, 1 << 24);
    sampled.sampler().start();
    sampled.sampler().stop();
    EXPECT_EQ(sampled.sampler().take().size(), 1U);
}

}  // namespace
}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
