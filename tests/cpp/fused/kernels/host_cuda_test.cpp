// SPDX-License-Identifier: MIT
// The host's CUDA itself: it must refuse what a GPU would, and show what a GPU might hide.
#include <stdexcept>

#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

cudaError_t start(dim3 grid, dim3 block, const std::function<void()>& body, size_t shared_bytes = 0) {
    return host_cuda::run({grid, block, shared_bytes, nullptr}, body);
}

TEST(HostCuda, EveryThreadRunsOnce) {
    int count[2][3][4][32] = {};
    start(dim3(2, 3), dim3(4, 32), [&] { ++count[blockIdx.x][blockIdx.y][threadIdx.x][threadIdx.y]; });
    for (const auto& of_x : count)
        for (const auto& of_y : of_x)
            for (const auto& thread : of_y)
                for (const int n : thread) EXPECT_EQ(n, 1);
}

TEST(HostCuda, ShufflesStayInTheWarp) {
    unsigned got[64] = {};
    start(1, 64, [&] {
        unsigned value = threadIdx.x;
        for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, mask);
        got[threadIdx.x] = value;
    });
    for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(got[i], i < 32 ? 496u : 496u + 1024u);
}

TEST(HostCuda, ABarrierWaitsForTheBlockWithoutThoseThatReturned) {
    unsigned seen[96] = {}, arrived = 0;
    start(1, 96, [&] {
        if (threadIdx.x >= 64) return;
        ++arrived;
        __syncthreads();
        seen[threadIdx.x] = arrived;
    });
    for (unsigned i = 0; i < 96; ++i) EXPECT_EQ(seen[i], i < 64 ? 64u : 0u);
}

TEST(HostCuda, AWaitThatNeverEndsIsAnError) {
    const auto diverge = [] { threadIdx.x == 0 ? __syncwarp() : __syncthreads(); };
    EXPECT_THROW(start(1, 32, diverge), std::logic_error);
    const auto leave = [] {
        if (threadIdx.x > 0) __syncwarp();
    };
    EXPECT_THROW(start(1, 32, leave), std::logic_error);
    EXPECT_EQ(start(1, 32, [] { __syncwarp(); }), cudaSuccess);
}

TEST(HostCuda, AMissingBarrierShows) {
    Both<float> out(64);
    float shared[64];
    const auto turn = [&](bool waits) {
        shared[threadIdx.x] = static_cast<float>(threadIdx.x);
        if (waits) __syncthreads();
        out.cuda()[threadIdx.x] = shared[63 - threadIdx.x];
    };
    std::vector<std::vector<unsigned char>> got;
    for (const bool waits : {true, false}) {
        for (const bool descending : {false, true}) {
            std::fill_n(shared, 64, -1.0f);
            host_cuda::descending = descending;
            start(1, 64, [&] { turn(waits); });
            got.push_back(out.room().content());
        }
    }
    host_cuda::descending = false;
    EXPECT_EQ(got[0], got[1]);
    EXPECT_NE(got[2], got[3]);
}

TEST(HostCuda, RefusesWhatAGpuRefuses) {
    const auto nothing = [] {};
    EXPECT_EQ(start(0, 32, nothing), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(start(dim3(1, 65536), 32, nothing), cudaErrorInvalidConfiguration);
    EXPECT_EQ(start(1, 1056, nothing), cudaErrorInvalidConfiguration);
    EXPECT_EQ(start(1, 32, nothing, 48 * 1024 + 1), cudaErrorInvalidConfiguration);
    cudaGetLastError();
}

TEST(HostCuda, SharedMemoryHasAnEnd) {
    const auto write = [] { static_cast<unsigned char*>(host_cuda::dynamic_shared())[threadIdx.x] = 0; };
    EXPECT_EQ(start(1, 32, write, 32), cudaSuccess);
    EXPECT_THROW(start(1, 32, write, 31), std::logic_error);
}

TEST(HostCuda, HalvesRoundToTheNearest) {
    EXPECT_EQ(__float2half(1.0f).bits, 0x3C00);
    EXPECT_EQ(__float2half(-2.0f).bits, 0xC000);
    EXPECT_EQ(__float2half(1.0f + 0x1p-11f).bits, 0x3C00);  // a tie, to even
    EXPECT_EQ(__float2half(1.0f + 0x3p-11f).bits, 0x3C02);
    EXPECT_EQ(__float2half(65519.0f).bits, 0x7BFF);
    EXPECT_EQ(__float2half(65520.0f).bits, 0x7C00);
    EXPECT_EQ(__float2half(0x1p-24f).bits, 1);
    EXPECT_EQ(__float2half(0x1p-14f).bits, 0x0400);
    EXPECT_EQ(__float2bfloat16(1.0f + 0x1p-8f).bits, 0x3F80);
    EXPECT_EQ(__float2bfloat16(1.0f + 0x3p-8f).bits, 0x3F82);
    for (unsigned bits = 0; bits < 0x7C00; ++bits) {
        const __half half{static_cast<uint16_t>(bits)};
        ASSERT_EQ(__float2half(__half2float(half)).bits, bits);
    }
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
