// SPDX-License-Identifier: MIT
// On files that keep what is written to them; what the kernel makes of it is tested in tests/pin.
#include "host/cgroup_limits.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.hpp"
#include "host/cgroup_error.hpp"
#include "host/fake_tree.hpp"
#include "host/files.hpp"

namespace dnnsuite::host {
namespace {

const std::vector<std::string> all{"cpuset", "memory", "cpu", "pids"};

std::string kind_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const CgroupError& error) {
        return error.kind;
    }
    return "";
}

TEST(Limits, Version2) {
    FakeTree tree;
    for (const char* file :
         {"cpuset.mems", "cpuset.cpus", "memory.max", "memory.swap.max", "memory.oom.group", "cpu.max", "pids.max"})
        tree.write(std::string("/g/") + file, "");
    tree.write("/g/cpuset.cpus.effective", "0-1,4");
    tree.write("/g/cpuset.mems.effective", "0");
    const Limits limits{.cpus = "4,0-1", .mems = "0", .memory_bytes = 1 << 20, .cpu_quota = 1.5, .processes = 100};
    const auto applied = apply_limits(2, tree.root + "/g", all, limits);
    EXPECT_EQ(applied.size(), 7U);
    EXPECT_EQ(read_text(tree.root + "/g/cpu.max"), "150000 100000");
    EXPECT_EQ(read_text(tree.root + "/g/memory.swap.max"), "0");
    EXPECT_EQ(read_text(tree.root + "/g/memory.oom.group"), "1");
    EXPECT_EQ(read_text(tree.root + "/g/pids.max"), "100");
    tree.write("/g/cpuset.cpus.effective", "0-2");  // the kernel says nothing and gives others
    EXPECT_EQ(kind_of([&] { apply_limits(2, tree.root + "/g", all, limits); }), "CpusetNotEffective");
}

TEST(Limits, Version1TakesWhatTheGroupAboveHas) {
    FakeTree tree;
    for (const char* file : {"cpuset.mems", "cpuset.cpus"}) {
        tree.write(std::string("/") + file, file[7] == 'm' ? "0-1" : "3");
        tree.write(std::string("/g/") + file, "");
    }
    tree.write("/g/memory.limit_in_bytes", "");
    const auto applied = apply_limits(1, tree.root + "/g", all, {.cpus = "3", .memory_bytes = 4096});
    EXPECT_EQ(read_text(tree.root + "/g/cpuset.mems"), "0-1");
    EXPECT_EQ(read_text(tree.root + "/g/cpuset.cpus"), "3");
    EXPECT_EQ(applied.back().file, "memory.limit_in_bytes");  // no swap accounting, so no file for it
    EXPECT_EQ(kind_of([&] { apply_limits(1, tree.root + "/g", all, {.processes = 3}); }), "ControllerUnavailable");
}

TEST(Limits, OnlyThoseOfTheHierarchysControllers) {
    FakeTree tree;
    tree.write("/g/pids.max", "");
    EXPECT_EQ(apply_limits(1, tree.root + "/g", {"pids"}, {.cpus = "0", .processes = 7}).size(), 1U);
    EXPECT_EQ((Limits{.mems = "0", .processes = 1}.controllers()), (std::vector<std::string>{"cpuset", "pids"}));
}

TEST(Limits, AFileThatDoesNotKeepTheValue) {
    EXPECT_EQ(kind_of([] { apply_limits(2, "/dev/null", {"pids"}, {.processes = 7}); }), "CgroupError");  // ENOTDIR
    FakeTree tree;
    std::filesystem::create_directories(tree.root + "/g");
    std::filesystem::create_symlink("/dev/null", tree.root + "/g/pids.max");
    EXPECT_EQ(kind_of([&] { apply_limits(2, tree.root + "/g", {"pids"}, {.processes = 7}); }), "LimitRejected");
}

TEST(Limits, RefusedBeforeAnythingIsWritten) {
    for (const Limits& limits : {Limits{.cpus = ""}, Limits{.cpus = "x"}, Limits{.memory_bytes = 1},
                                 Limits{.cpu_quota = 0.0}, Limits{.cpu_quota = -1.0}, Limits{.processes = -1}})
        EXPECT_THROW(apply_limits(2, "/nowhere", all, limits), InvalidArgument);
}

}  // namespace
}  // namespace dnnsuite::host
