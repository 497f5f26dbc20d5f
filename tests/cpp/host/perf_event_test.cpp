// SPDX-License-Identifier: MIT
#include "host/perf_event.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <thread>

#include "base/error.hpp"
#include "host/files.hpp"

namespace dnnsuite::host {
namespace {

const std::vector<std::string> software = {"task_clock", "page_faults", "context_switches", "migrations"};

/// A software group of `tid`, or nothing where a sandbox forbids even that.
std::optional<PerfGroup> open_software(int tid = 0) {
    try {
        return PerfGroup(tid, software);
    } catch (const Unavailable&) {
        return std::nullopt;
    }
}

void touch(std::size_t pages) {
    const auto bytes = pages * 4096;
    const auto memory = std::make_unique_for_overwrite<volatile char[]>(bytes);
    for (std::size_t i = 0; i < bytes; i += 4096) memory[i] = 1;
}

TEST(PerfEvent, SoftwareCountersCountThisThread) {
    auto group = open_software();
    if (!group) GTEST_SKIP() << "perf_event_open is forbidden here";
    touch(4096);
    EXPECT_EQ(group->read()[0].raw, 0U);  // not before it is enabled
    group->enable();
    touch(4096);
    group->disable();
    const auto values = group->read();
    ASSERT_EQ(values.size(), software.size());
    EXPECT_GT(values[0].raw, 0U);
    EXPECT_GT(values[1].raw, 1000U);  // 16 MiB in pages, or in larger folios
    touch(4096);
    EXPECT_EQ(group->read()[1].raw, values[1].raw);
    EXPECT_FALSE(values[0].multiplexed());
}

TEST(PerfEvent, CountsOutliveTheThread) {
    std::atomic<int> tid = 0;
    std::atomic<bool> opened = false;
    std::thread worker([&] {
        tid = gettid();
        while (!opened) std::this_thread::yield();
        touch(1024);
    });
    while (tid == 0) std::this_thread::yield();
    auto group = open_software(tid);
    if (group) group->enable();
    opened = true;
    worker.join();
    if (!group) GTEST_SKIP() << "perf_event_open is forbidden here";
    EXPECT_GT(group->read()[0].raw, 0U);
}

TEST(PerfEvent, HardwareCountsOrSaysWhyNot) {
    try {
        PerfGroup group(0, {"cycles", "instructions"});
        group.enable();
        touch(256);
        EXPECT_GT(group.read()[1].raw, 0U);
    } catch (const Unavailable& error) {  // a machine without a PMU, whose kernel says ENOENT
        EXPECT_NE(error.what_is_missing.find("cycles"), std::string::npos);
        EXPECT_FALSE(error.remedy.empty());
        EXPECT_EQ(error.looked_in, "perf_event_open");
    }
}

TEST(PerfEvent, ARefusalLeavesNoDescriptor) {
    const int before = ::open("/dev/null", O_RDONLY);
    ::close(before);
    EXPECT_THROW(PerfGroup(-7, software), Error);  // no such thread, whatever this machine counts
    const int after = ::open("/dev/null", O_RDONLY);
    ::close(after);
    EXPECT_EQ(before, after);
}

TEST(PerfEvent, UnknownNamesAreRefusedWithTheKnown) {
    EXPECT_THROW(PerfGroup(0, {}), InvalidArgument);
    try {
        PerfGroup(0, {"task_clock", "cicles"});
        FAIL();
    } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find("'cicles'; there is cycles"), std::string::npos);
    }
}

TEST(PerfEvent, ErrnosBecomeSentences) {
    EXPECT_NE(explain_perf_errno(ENOENT, "cycles").what.find("no PMU"), std::string::npos);
    EXPECT_NE(explain_perf_errno(EACCES, "cycles").what.find("perf_event_paranoid"), std::string::npos);
    EXPECT_EQ(explain_perf_errno(EPERM, "x").remedy, explain_perf_errno(EACCES, "x").remedy);
    EXPECT_EQ(explain_perf_errno(EINVAL, "x").remedy, "leave it out");
    EXPECT_NE(explain_perf_errno(EMFILE, "x").remedy.find("ulimit"), std::string::npos);
    EXPECT_NE(explain_perf_errno(EIO, "x").what.find("Input/output"), std::string::npos);
}

TEST(PerfEvent, ScalesWhatRanPartOfTheTime) {
    EXPECT_DOUBLE_EQ((PerfValue{100, 1000, 250}).scaled(), 400.0);
    EXPECT_TRUE((PerfValue{100, 1000, 250}).multiplexed());
    EXPECT_DOUBLE_EQ((PerfValue{100, 1000, 1000}).scaled(), 100.0);
    EXPECT_TRUE(std::isnan((PerfValue{0, 1000, 0}).scaled()));
}

}  // namespace
}  // namespace dnnsuite::host
