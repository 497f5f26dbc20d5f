// SPDX-License-Identifier: MIT
// On plain folders; groups of the kernel are tested in tests/pin.
#include "host/cgroup.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.hpp"
#include "host/cgroup_error.hpp"
#include "host/fake_tree.hpp"

namespace dnnsuite::host {
namespace {

static_assert(std::is_nothrow_move_constructible_v<Cgroup> && std::is_nothrow_move_assignable_v<Cgroup>);
static_assert(!std::is_copy_constructible_v<Cgroup>);

std::vector<Branch> above(const FakeTree& tree) {
    std::filesystem::create_directories(tree.root + "/a");
    std::filesystem::create_directories(tree.root + "/b");
    return {{1, tree.root + "/a", {}}, {2, tree.root + "/b", {}}};
}

TEST(Cgroups, LiveAsLongAsTheObject) {
    FakeTree tree;
    {
        const Cgroup group = Cgroup::create(above(tree), "one", {});
        EXPECT_TRUE(std::filesystem::is_directory(tree.root + "/a/one"));
        EXPECT_TRUE(std::filesystem::is_directory(tree.root + "/b/one"));
        EXPECT_TRUE(group.processes().empty());
    }
    EXPECT_TRUE(std::filesystem::is_empty(tree.root + "/a"));
    EXPECT_TRUE(std::filesystem::is_empty(tree.root + "/b"));
}

TEST(Cgroups, NothingIsLeftOfOneThatCannotBeMade) {
    FakeTree tree;
    const auto branches = above(tree);
    std::filesystem::create_directories(tree.root + "/b/one");
    try {
        Cgroup::create(branches, "one", {});
        FAIL();
    } catch (const CgroupError& error) {
        EXPECT_EQ(error.kind, "CgroupExists");
    }
    EXPECT_TRUE(std::filesystem::is_empty(tree.root + "/a"));
    EXPECT_TRUE(std::filesystem::exists(tree.root + "/b/one"));  // another's
}

TEST(Cgroups, Names) {
    FakeTree tree;
    for (const char* name : {"", "..", ".x", "a/b", "a b", "a\n"})
        EXPECT_THROW(Cgroup::create(above(tree), name, {}), InvalidArgument) << name;
    EXPECT_THROW(Cgroup::create(above(tree), std::string(201, 'x'), {}), InvalidArgument);
}

TEST(Cgroups, CountsWhatTheKernelSays) {
    FakeTree tree;
    tree.write("/g/memory.peak", "4096");
    tree.write("/g/memory.events", "low 0\noom 1\noom_kill 2");
    tree.write("/g/cpu.stat", "usage_usec 1500000\nnr_throttled 3");
    tree.write("/h/memory.max_usage_in_bytes", "8192");
    tree.write("/h/memory.oom_control", "oom_kill_disable 0\noom_kill 5");
    tree.write("/h/cpuacct.usage", "2000000000");
    Cgroup v2 = Cgroup::adopt({{2, tree.root + "/g", {"memory", "cpu"}}});
    Cgroup v1 = Cgroup::adopt({{1, tree.root + "/h", {"memory"}}});
    const GroupCounters two = v2.counters(), one = v1.counters();
    EXPECT_EQ(two.memory_peak_bytes, 4096);
    EXPECT_EQ(two.oom_kills, 2);
    EXPECT_EQ(two.oom_here, 1);
    EXPECT_EQ(two.cpu_seconds, 1.5);
    EXPECT_EQ(two.throttled, 3);
    EXPECT_EQ(two.forks_refused, std::nullopt);
    EXPECT_EQ(one.memory_peak_bytes, 8192);
    EXPECT_EQ(one.oom_kills, 5);
    EXPECT_EQ(one.oom_here, std::nullopt);
    EXPECT_EQ(one.cpu_seconds, 2.0);
}

TEST(Cgroups, NeverKillThisProcess) {
    FakeTree tree;
    tree.write("/g/cgroup.procs", std::to_string(getpid()));
    tree.write("/g/cgroup.kill", "");
    const Cgroup group = Cgroup::adopt({{2, tree.root + "/g", {}}});
    EXPECT_TRUE(group.kill(0.1).empty());
    EXPECT_EQ(std::filesystem::file_size(tree.root + "/g/cgroup.kill"), 1U);  // not written: it would be the end
}

}  // namespace
}  // namespace dnnsuite::host
