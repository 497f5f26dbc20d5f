// SPDX-License-Identifier: MIT
#include "gpu/cuda_runtime.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace dnnsuite::gpu {
namespace {

TEST(CudaRuntime, SaysWhatIsMissingWhereThereIsNoDriver) {
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr) GTEST_SKIP() << "there is a driver";
    for (auto* const function : {&cuda_profiler_start, &cuda_profiler_stop}) {
        try {
            function();
            FAIL() << "it ran";
        } catch (const Unavailable& error) {
            EXPECT_NE(error.what_is_missing.find("libcuda.so.1"), std::string::npos);
            EXPECT_NE(error.remedy.find("driver"), std::string::npos);
        }
    }
}

}  // namespace
}  // namespace dnnsuite::gpu
