// SPDX-License-Identifier: MIT
// Against the real library, which needs no GPU for this; skipped where there is none.
#include "gpu/counter_host.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "gpu/counter_api.hpp"
#include "gpu/library.hpp"

namespace dnnsuite::gpu {
namespace {

class CounterHostTest : public ::testing::Test {
  protected:
    void SetUp() override {
        add_library_folder("/usr/local/cuda/lib64");
        try {
            host = open_counter_host("GH100", Collection::kRanges);
        } catch (const Unavailable& missing) {
            GTEST_SKIP() << missing.what();
        }
    }
    std::unique_ptr<CounterHost> host;
};

TEST_F(CounterHostTest, ListsAndDescribes) {
    const std::vector<std::string> counters = host->metrics("counter");
    EXPECT_NE(std::find(counters.begin(), counters.end(), "sm__cycles_active"), counters.end());
    EXPECT_THROW(host->metrics("colour"), InvalidArgument);
    const std::vector<std::string> endings = host->submetrics("sm__cycles_active");
    EXPECT_NE(std::find(endings.begin(), endings.end(), ".avg"), endings.end());
    EXPECT_EQ(host->describe("dram__bytes_read").unit, "byte");
    EXPECT_EQ(host->describe("sm__cycles_active").hardware_unit, "sm");
    EXPECT_THROW(host->describe("no__such"), InvalidArgument);
}

TEST_F(CounterHostTest, OnlyFullNamesOfTheChipAreAccepted) {
    EXPECT_TRUE(host->accepts("sm__cycles_active.avg"));
    EXPECT_FALSE(host->accepts("sm__cycles_active"));
    EXPECT_FALSE(host->accepts("sm__inst_executed_pipe_fp16.sum"));  // of older chips
}

TEST_F(CounterHostTest, ConfiguresWhatGoesTogether) {
    const auto one = host->configure({"sm__cycles_active.avg", "dram__bytes_read.sum"});
    ASSERT_TRUE(one);
    EXPECT_EQ(one->passes, 1U);
    EXPECT_FALSE(one->image.empty());
    EXPECT_GT(host->configure({"lts__t_sector_hit_rate.pct"})->passes, 1U);
    EXPECT_FALSE(host->configure({"sm__cycles_active.avg", "pcie__read_bytes.sum"}));
    EXPECT_THROW(host->configure({}), InvalidArgument);
    EXPECT_THROW(host->configure({"sm__cycles_active.avg", "no__such.avg"}), InvalidArgument);
    EXPECT_GT(host->max_metrics_per_pass(), 16U);
}

TEST_F(CounterHostTest, UnknownChipsAreNamedWithTheKnown) {
    try {
        open_counter_host("GH200", Collection::kRanges);
        FAIL() << "opened";
    } catch (const Unavailable& error) {
        EXPECT_NE(error.what_is_missing.find("GH200"), std::string::npos);
        EXPECT_NE(error.remedy.find("GH100"), std::string::npos);
    }
    EXPECT_THROW(open_counter_host("GV100", Collection::kSampling), Unavailable);
    EXPECT_GE(cupti_version(), 130000U);
}

TEST_F(CounterHostTest, GarbageIsRefusedBeforeTheLibrarySeesIt) {
    const std::vector<std::uint8_t> garbage(4096, 0xff);
    EXPECT_THROW(host->evaluate_sealed(garbage.data(), garbage.size(), {"sm__cycles_active.avg"}), Error);
    const SealedImage sealed = seal_image(std::vector<std::uint8_t>(4096));  // sealed, and yet no image
    EXPECT_THROW(host->evaluate_sealed(sealed.data(), sealed.size(), {"sm__cycles_active.avg"}), Error);
}

}  // namespace
}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
