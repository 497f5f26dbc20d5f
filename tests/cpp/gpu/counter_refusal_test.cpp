// SPDX-License-Identifier: MIT
#include "gpu/counter_refusal.hpp"

#include <gtest/gtest.h>

#include <string>

#ifdef DNNSUITE_HAS_CUPTI
#include <cupti_result.h>
#endif

namespace dnnsuite::gpu {
namespace {

TEST(CounterRefusal, SaysWhoHoldsTheCountersAndWhatHelps) {
    const CounterRefusal* const busy = counter_refusal(26);
    ASSERT_NE(busy, nullptr);
    EXPECT_NE(std::string(busy->remedy).find("dcgmi profile --pause"), std::string::npos);
    const CounterRefusal* const permission = counter_refusal(35);
    ASSERT_NE(permission, nullptr);
    EXPECT_NE(std::string(permission->remedy).find("NVreg_RestrictProfilingToAdminUsers=0"), std::string::npos);
    EXPECT_NE(std::string(permission->remedy).find("RmProfilingAdminOnly"), std::string::npos);
}

TEST(CounterRefusal, AMistakeOfTheProgramIsNone) {
    EXPECT_EQ(counter_refusal(1), nullptr);
    EXPECT_EQ(counter_refusal(999), nullptr);
    EXPECT_EQ(counter_refusal(-7), nullptr);
    EXPECT_STREQ(cupti_result_name(12345), "an unnamed error");
}

#ifdef DNNSUITE_HAS_CUPTI
#define EXPECT_NAMED(error) EXPECT_STREQ(cupti_result_name(error), #error)
TEST(CounterRefusal, NumbersAreThoseOfTheHeaders) {
    EXPECT_NAMED(CUPTI_ERROR_INVALID_PARAMETER);
    EXPECT_NAMED(CUPTI_ERROR_INVALID_DEVICE);
    EXPECT_NAMED(CUPTI_ERROR_INVALID_CONTEXT);
    EXPECT_NAMED(CUPTI_ERROR_INVALID_OPERATION);
    EXPECT_NAMED(CUPTI_ERROR_OUT_OF_MEMORY);
    EXPECT_NAMED(CUPTI_ERROR_HARDWARE);
    EXPECT_NAMED(CUPTI_ERROR_API_NOT_IMPLEMENTED);
    EXPECT_NAMED(CUPTI_ERROR_MAX_LIMIT_REACHED);
    EXPECT_NAMED(CUPTI_ERROR_NOT_COMPATIBLE);
    EXPECT_NAMED(CUPTI_ERROR_NOT_INITIALIZED);
    EXPECT_NAMED(CUPTI_ERROR_INVALID_METRIC_NAME);
    EXPECT_NAMED(CUPTI_ERROR_HARDWARE_BUSY);
    EXPECT_NAMED(CUPTI_ERROR_NOT_SUPPORTED);
    EXPECT_NAMED(CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS);
    EXPECT_NAMED(CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED);
    EXPECT_NAMED(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    EXPECT_NAMED(CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED);
    EXPECT_NAMED(CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED);
    EXPECT_NAMED(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    EXPECT_NAMED(CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES);
    EXPECT_NAMED(CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED);
    EXPECT_NAMED(CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED);
    EXPECT_NAMED(CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED);
    EXPECT_NAMED(CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED);
    EXPECT_NAMED(CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED);
    EXPECT_NAMED(CUPTI_ERROR_INVALID_CHIP_NAME);
    EXPECT_NAMED(CUPTI_ERROR_UNKNOWN);
}
#endif

}  // namespace
}  // namespace dnnsuite::gpu
