// SPDX-License-Identifier: MIT
#include "host/group_tree.hpp"

#include <gtest/gtest.h>

#include "host/cgroup_error.hpp"
#include "host/fake_tree.hpp"
#include "host/files.hpp"

namespace dnnsuite::host {
namespace {

/// Version 1 pids, whose folders need no files that only the kernel makes.
void version1(const FakeTree& tree, const std::string& own) {
    tree.write("/proc/self/mountinfo", "39 31 0:36 / /cg/pids rw - cgroup cgroup rw,pids");
    tree.write("/proc/self/cgroup", "8:pids:" + own);
    std::filesystem::create_directories(tree.root + "/cg/pids" + own);
}

std::string kind_of(const std::string& root, const std::string& parent) {
    try {
        const GroupTree tree(root, parent, "run", {"memory"});
    } catch (const CgroupError& error) {
        return error.kind + ": " + error.what();
    }
    return "";
}

TEST(GroupTrees, BelowTheGivenParent) {
    FakeTree tree;
    version1(tree, "/own");
    {
        const GroupTree groups(tree.root, "/x/y", "run", {"pids", "memory"});
        ASSERT_EQ(groups.branches().size(), 1U);
        EXPECT_EQ(groups.branches()[0].folder, tree.root + "/cg/pids/x/y/run");
        EXPECT_TRUE(groups.missing().contains("memory"));
        const Cgroup group = groups.make("one", {});
        EXPECT_TRUE(std::filesystem::exists(tree.root + "/cg/pids/x/y/run/one"));
    }
    EXPECT_FALSE(std::filesystem::exists(tree.root + "/cg/pids/x"));  // it was made for it
}

TEST(GroupTrees, Version1ClimbsAsFarAsNoLimitIsEscaped) {
    FakeTree tree;
    version1(tree, "/a/b/c");
    tree.write("/cg/pids/a/b/c/pids.max", "max");
    EXPECT_EQ(GroupTree(tree.root, "", "run", {"pids"}).branches()[0].folder, tree.root + "/cg/pids/run");
    tree.write("/cg/pids/a/b/pids.max", "100");
    EXPECT_EQ(GroupTree(tree.root, "", "run", {"pids"}).branches()[0].folder, tree.root + "/cg/pids/a/b/run");
}

TEST(GroupTrees, ControllersThatAreNotPassedOn) {
    FakeTree tree;
    tree.write("/proc/self/mountinfo", "29 23 0:26 / /cg rw - cgroup2 cgroup2 rw");
    tree.write("/proc/self/cgroup", "0::/user");
    tree.write("/cg/cgroup.controllers", "memory pids");
    tree.write("/cg/cgroup.subtree_control", "memory pids");
    tree.write("/cg/user/cgroup.controllers", "pids");
    tree.write("/cg/user/cgroup.subtree_control", "");
    tree.write("/cg/user/cgroup.type", "domain");
    const GroupTree groups(tree.root, "", "run", {"memory", "cpuset"});
    EXPECT_NE(groups.missing().at("memory").find("/cg/user/cgroup.controllers"), std::string::npos);
    EXPECT_NE(groups.missing().at("memory").find("Delegate="), std::string::npos);
    EXPECT_TRUE(groups.missing().contains("cpuset"));
}

TEST(GroupTrees, StrangersInTheOwnGroup) {
    FakeTree tree;
    tree.write("/proc/self/mountinfo", "29 23 0:26 / /cg rw - cgroup2 cgroup2 rw");
    tree.write("/proc/self/cgroup", "0::/user");
    tree.write("/cg/cgroup.controllers", "memory");
    tree.write("/cg/user/cgroup.type", "domain");
    tree.write("/cg/user/cgroup.procs", "1");
    const std::string said = kind_of(tree.root, "");
    EXPECT_TRUE(said.starts_with("CgroupBusy")) << said;
    EXPECT_NE(said.find("systemd-run --scope -p Delegate=yes"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(tree.root + "/cg/user/run-supervisor"));
}

TEST(GroupTrees, NoneMountedAndOutside) {
    FakeTree tree;
    EXPECT_TRUE(kind_of(tree.root, "").starts_with("CgroupNotMounted"));
    tree.write("/proc/self/mountinfo", "29 23 0:26 / /cg rw - cgroup2 cgroup2 rw");
    tree.write("/proc/self/cgroup", "0::/../other");
    tree.write("/cg/cgroup.controllers", "memory");
    EXPECT_TRUE(kind_of(tree.root, "").starts_with("CgroupNotMounted"));
}

TEST(GroupTrees, AnotherRunsNameIsLeftAlone) {
    FakeTree tree;
    version1(tree, "");
    std::filesystem::create_directories(tree.root + "/cg/pids/run");
    EXPECT_THROW(GroupTree(tree.root, "", "run", {"pids"}), CgroupError);
    EXPECT_TRUE(std::filesystem::exists(tree.root + "/cg/pids/run"));
}

}  // namespace
}  // namespace dnnsuite::host
