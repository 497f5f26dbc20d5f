// SPDX-License-Identifier: MIT
#include "gpu/counter_api.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "gpu/library.hpp"

namespace dnnsuite::gpu {
namespace {

TEST(CounterApi, ParametersBeginWithTheirSize) {
    const auto params = DNNSUITE_CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params);
    EXPECT_EQ(params.structSize, CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE);
    EXPECT_EQ(params.pPriv, nullptr);
}

TEST(CounterApi, ResultsBecomeErrorsThatNameTheCall) {
    counter_check(CUPTI_SUCCESS, "cuptiAnything");
    try {
        counter_check(CUPTI_ERROR_INVALID_PARAMETER, "cuptiAnything");
        FAIL() << "accepted";
    } catch (const Unavailable&) {
        FAIL() << "a mistake of the program is not the machine's";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "cuptiAnything: CUPTI_ERROR_INVALID_PARAMETER (1)");
    }
    EXPECT_THROW(counter_check(CUPTI_ERROR_HARDWARE_BUSY, "cuptiAnything"), Unavailable);
}

TEST(CounterApi, EveryFunctionIsInTheRealLibrary) {
    add_library_folder("/usr/local/cuda/lib64");
    try {
        counter_host_api();
    } catch (const Unavailable& missing) {
        GTEST_SKIP() << missing.what();
    }
    EXPECT_NE(counter_device_api().device_supported, nullptr);
    EXPECT_NE(range_api().decode, nullptr);
    EXPECT_NE(pm_sampling_api().decode, nullptr);
}

}  // namespace
}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
