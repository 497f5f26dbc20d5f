// SPDX-License-Identifier: MIT
#include "gpu/cupti.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <gtest/gtest.h>

#include <ctime>

#include "activity_records.hpp"

namespace dnnsuite::gpu {
namespace {

TEST(Cupti, NamesOfCallsLoseTheirDate) {
    DNNSUITE_REQUIRE_CUPTI();
    EXPECT_EQ(cupti_function_name(*cupti, 1, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000), "cudaLaunchKernel");
    EXPECT_EQ(cupti_function_name(*cupti, 0, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel), "cuLaunchKernel");
    EXPECT_EQ(cupti_function_name(*cupti, 0, CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2), "cuMemcpyHtoDAsync_v2");
    EXPECT_EQ(cupti_function_name(*cupti, 1, 99'999'999), "");
}

TEST(Cupti, ErrorsSayWhoHoldsWhatAndTheWayOut) {
    DNNSUITE_REQUIRE_CUPTI();
    EXPECT_NO_THROW(cupti_check(*cupti, CUPTI_SUCCESS, "call"));
    const auto remedy = [&](CUptiResult result) {
        try {
            cupti_check(*cupti, result, "call");
        } catch (const Unavailable& error) {
            EXPECT_NE(error.what_is_missing.find("call"), std::string::npos);
            return error.remedy;
        }
        return std::string("none");
    };
    EXPECT_NE(remedy(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED).find("torch.profiler"), std::string::npos);
    EXPECT_NE(remedy(CUPTI_ERROR_HARDWARE_BUSY).find("ncu"), std::string::npos);
    EXPECT_NE(remedy(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES).find("NVreg_RestrictProfilingToAdminUsers"),
              std::string::npos);
    EXPECT_THROW(cupti_check(*cupti, CUPTI_ERROR_INVALID_KIND, "call"), Error);
}

TEST(Cupti, StampsByTheWallClockUnlessToldOtherwise) {
    DNNSUITE_REQUIRE_CUPTI();
    std::uint64_t stamp = 0;
    ASSERT_EQ(cupti->get_timestamp(&stamp), CUPTI_SUCCESS);
    EXPECT_NEAR(static_cast<double>(stamp) * 1e-9, static_cast<double>(std::time(nullptr)), 60);
}

}  // namespace
}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
