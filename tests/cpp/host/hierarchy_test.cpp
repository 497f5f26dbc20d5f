// SPDX-License-Identifier: MIT
#include "host/hierarchy.hpp"

#include <gtest/gtest.h>

#include "host/fake_tree.hpp"

namespace dnnsuite::host {
namespace {

using Names = std::vector<std::string>;

TEST(Hierarchies, Version2) {
    FakeTree tree;
    tree.write("/proc/self/mountinfo",
               "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate");
    tree.write("/proc/self/cgroup", "0::/user.slice/a b.scope");
    tree.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids");
    const auto found = read_hierarchies(tree.root);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].version, 2);
    EXPECT_EQ(found[0].controllers, (Names{"cpuset", "cpu", "io", "memory", "pids"}));
    EXPECT_EQ(found[0].own, tree.root + "/sys/fs/cgroup/user.slice/a b.scope");
    EXPECT_FALSE(found[0].read_only);
}

TEST(Hierarchies, AMixedHostControllerByController) {
    FakeTree tree;
    tree.write("/proc/self/mountinfo",
               "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
               "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
               "35 31 0:32 / /sys/fs/cgroup/mem\\040ory rw - cgroup cgroup rw,memory\n"
               "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
               "41 31 0:38 / /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n");
    tree.write("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/job/7\n2:cpu,cpuacct:/\n0::/");
    tree.write("/sys/fs/cgroup/unified/cgroup.controllers", "cpuset pids");
    const auto found = read_hierarchies(tree.root);
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0].controllers, (Names{"cpuset", "pids"}));
    EXPECT_TRUE(found[0].read_only);
    EXPECT_EQ(found[1].controllers, (Names{"cpu", "cpuacct"}));
    EXPECT_EQ(found[1].own, tree.root + "/sys/fs/cgroup/cpu,cpuacct");
    EXPECT_EQ(found[2].own, tree.root + "/sys/fs/cgroup/mem ory/job/7");
}

TEST(Hierarchies, AContainerSeesAPartOfTheTree) {
    FakeTree tree;
    tree.write("/proc/self/mountinfo", "29 23 0:26 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup2 rw");
    tree.write("/proc/self/cgroup", "0::/docker/1/inner");
    EXPECT_EQ(read_hierarchies(tree.root).at(0).own, tree.root + "/sys/fs/cgroup/inner");
    tree.write("/proc/self/cgroup", "0::/docker/12");  // its name begins alike
    EXPECT_EQ(read_hierarchies(tree.root).at(0).own, "");
    tree.write("/proc/self/cgroup", "0::/../..");
    EXPECT_EQ(read_hierarchies(tree.root).at(0).own, "");
}

TEST(Hierarchies, NoneAndNonsense) {
    FakeTree tree;
    EXPECT_TRUE(read_hierarchies(tree.root).empty());
    tree.write("/proc/self/mountinfo", "x\n\n1 2 3 - cgroup2\n29 23 0:26 / /sys/fs/cgroup rw - cgroup");
    tree.write("/proc/self/cgroup", "nonsense\n:");
    EXPECT_TRUE(read_hierarchies(tree.root).empty());
}

TEST(GroupProcesses, AlsoBelow) {
    FakeTree tree;
    tree.write("/g/cgroup.procs", "12\n0\n13");  // 0: in another pid namespace
    tree.write("/g/inner/cgroup.procs", "14");
    EXPECT_EQ(group_processes(tree.root + "/g", false), (std::vector<int>{12, 13}));
    EXPECT_EQ(group_processes(tree.root + "/g", true), (std::vector<int>{12, 13, 14}));
    EXPECT_TRUE(group_processes(tree.root + "/none", true).empty());
}

}  // namespace
}  // namespace dnnsuite::host
