// SPDX-License-Identifier: MIT
#include "host/cgroup_error.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

namespace dnnsuite::host {
namespace {

std::string kind_of(const std::string& path, int number) {
    try {
        refuse("write", path, "5", number);
    } catch (const CgroupError& error) {
        EXPECT_EQ(error.number, number);
        EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
        EXPECT_FALSE(error.hint.empty());
        return error.kind;
    }
}

TEST(CgroupErrors, EachReasonHasItsKind) {
    EXPECT_EQ(kind_of("/none/pids.max", EROFS), "CgroupReadOnly");
    EXPECT_EQ(kind_of("/none/pids.max", EACCES), "CgroupPermissionDenied");
    EXPECT_EQ(kind_of("/none/cgroup.procs", EPERM), "CgroupPermissionDenied");
    EXPECT_EQ(kind_of("/none/cgroup.procs", EBUSY), "CgroupBusy");
    EXPECT_EQ(kind_of("/none/memory.limit_in_bytes", EBUSY), "LimitBelowUsage");
    EXPECT_EQ(kind_of("/none/cgroup.procs", EOPNOTSUPP), "InvalidDomain");
    EXPECT_EQ(kind_of("/none/cgroup.procs", ENOSPC), "CpusetEmpty");
    EXPECT_EQ(kind_of("/none/pids.max", EINVAL), "LimitRejected");
    EXPECT_EQ(kind_of("/none/x", EEXIST), "CgroupExists");
    EXPECT_EQ(kind_of("/none/x", ENOENT), "ControllerUnavailable");
}

TEST(CgroupErrors, AFileThatMayBeWrittenRefusesTheValue) {
    const std::string path = testing::TempDir() + "cpuset.cpus" + std::to_string(getpid());
    std::ofstream(path).close();
    EXPECT_EQ(kind_of(path, EACCES), "LimitRejected");
}

TEST(CgroupErrors, OneLine) {
    const CgroupError error("CgroupBusy", "write", "/sys/x", "+cpu", EBUSY, "go away");
    EXPECT_STREQ(error.what(), "control group: write '+cpu' /sys/x: Device or resource busy; go away");
}

}  // namespace
}  // namespace dnnsuite::host
