// SPDX-License-Identifier: MIT
// The thread and the state machine over a double of our own table of functions. No GPU is played.
#include "gpu/pm_sampling.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "gpu/counter_api.hpp"
#include "gpu/host_double.hpp"

namespace dnnsuite::gpu {
namespace {

struct Double {
    std::atomic<int> decodes{0};
    std::atomic<int> full{0};  ///< that many decodes say that the image was full
    std::atomic<int> overflows{0};
    std::atomic<bool> fails{false};
    std::atomic<bool> enabled{false}, sampling{false};
    CUpti_PmSampling_SetConfig_Params config{};
} g;

const PmSamplingApi kDouble{
    .enable =
        [](CUpti_PmSampling_Enable_Params* p) {
            p->pPmSamplingObject = reinterpret_cast<CUpti_PmSampling_Object*>(&g);
            g.enabled = true;
            return CUPTI_SUCCESS;
        },
    .disable =
        [](CUpti_PmSampling_Disable_Params*) {
            g.enabled = false;
            return CUPTI_SUCCESS;
        },
    .set_config =
        [](CUpti_PmSampling_SetConfig_Params* p) {
            g.config = *p;
            return CUPTI_SUCCESS;
        },
    .get_image_size =
        [](CUpti_PmSampling_GetCounterDataSize_Params* p) {
            p->counterDataSize = p->maxSamples;
            return CUPTI_SUCCESS;
        },
    .initialize_image = [](CUpti_PmSampling_CounterDataImage_Initialize_Params*) { return CUPTI_SUCCESS; },
    .start =
        [](CUpti_PmSampling_Start_Params*) {
            g.sampling = true;
            return CUPTI_SUCCESS;
        },
    .stop =
        [](CUpti_PmSampling_Stop_Params*) {
            g.sampling = false;
            return CUPTI_SUCCESS;
        },
    .decode =
        [](CUpti_PmSampling_DecodeData_Params* p) {
            ++g.decodes;
            p->decodeStopReason = g.full-- > 0 ? CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL
                                               : CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS;
            p->overflow = g.overflows-- > 0 ? 1 : 0;
            return g.fails ? CUPTI_ERROR_HARDWARE : CUPTI_SUCCESS;
        },
};

class PmSamplerTest : public ::testing::Test {
  protected:
    void SetUp() override {
        g.decodes = g.full = g.overflows = 0;
        g.fails = g.enabled = g.sampling = false;
        host.passes = {{"a", 1}, {"two", 2}};
        options.decode_every_ns = 3'600'000'000'000;  // the thread waits for the end, unless a test says otherwise
    }
    void await_decodes(int count) const {
        while (g.decodes < count) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    HostDouble host;
    SamplingOptions options;
};

TEST_F(PmSamplerTest, TheFirstSampleBeganBeforeTheWindow) {
    host.samples = 4;
    PmSampler sampler(kDouble, host, {"a"}, options);
    sampler.start();
    sampler.stop();
    const std::vector<SampledWindow> windows = sampler.take();
    ASSERT_EQ(windows.size(), 1U);
    EXPECT_EQ(windows[0].samples.t0_ns, (std::vector<std::int64_t>{100, 200, 300}));
    EXPECT_EQ(windows[0].samples.values.size(), 3U);
    EXPECT_GT(windows[0].monotonic_ns, 0);
    EXPECT_EQ(windows[0].image.size(), options.samples_per_image);  // the double's size
    EXPECT_TRUE(sampler.take().empty());
}

TEST_F(PmSamplerTest, AFullImageIsFetchedAgainAtOnceAndOverflowIsCounted) {
    host.samples = 2;
    g.full = 3;
    g.overflows = 2;
    PmSampler sampler(kDouble, host, {"a"}, options);
    sampler.start();
    sampler.stop();
    EXPECT_EQ(g.decodes, 4);
    const std::vector<SampledWindow> windows = sampler.take();
    EXPECT_EQ(windows[0].overflows, 2U);
    EXPECT_EQ(windows[0].samples.values.size(), 7U);  // 4 images of 2, without the first sample
}

TEST_F(PmSamplerTest, AThreadFetchesWhileTheWindowIsOpen) {
    options.decode_every_ns = 100'000;
    host.samples = 1;
    PmSampler sampler(kDouble, host, {"a"}, options);
    sampler.start();
    await_decodes(5);
    sampler.stop();
    EXPECT_GE(sampler.take()[0].samples.values.size(), 4U);
    EXPECT_FALSE(g.sampling);
}

TEST_F(PmSamplerTest, WhatTheThreadRanIntoIsThrownAtTheEnd) {
    options.decode_every_ns = 100'000;
    PmSampler sampler(kDouble, host, {"a"}, options);
    g.fails = true;
    sampler.start();
    await_decodes(1);
    EXPECT_THROW(sampler.stop(), Error);
    EXPECT_FALSE(g.sampling);
    g.fails = false;
    sampler.start();  // and the next window is whole
    sampler.stop();
    EXPECT_EQ(sampler.take().size(), 1U);
}

TEST_F(PmSamplerTest, SeveralPassesAreRefusedBeforeTheGpuIsTouched) {
    EXPECT_THROW(PmSampler(kDouble, host, {"two"}, options), InvalidArgument);
    EXPECT_FALSE(g.enabled);
}

TEST_F(PmSamplerTest, ClosingEndsAnOpenWindow) {
    {
        PmSampler sampler(kDouble, host, {"a"}, options);
        sampler.start();
        EXPECT_THROW(sampler.start(), Error);
    }
    EXPECT_FALSE(g.sampling);
    EXPECT_FALSE(g.enabled);
    PmSampler sampler(kDouble, host, {"a"}, options);
    EXPECT_THROW(sampler.stop(), Error);
    sampler.close();
    sampler.close();
    EXPECT_THROW(sampler.start(), Error);
}

TEST_F(PmSamplerTest, OldChipsAreConfiguredByCycles) {
    options.interval_in_cycles = true;
    options.keep_latest = false;
    options.interval = 12345;
    PmSampler sampler(kDouble, host, {"a"}, options);
    EXPECT_EQ(g.config.triggerMode, CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL);
    EXPECT_EQ(g.config.hwBufferAppendMode, CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST);
    EXPECT_EQ(g.config.samplingInterval, 12345U);
}

}  // namespace
}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
