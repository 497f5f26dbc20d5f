// SPDX-License-Identifier: MIT
#include "host/launch.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "host/cgroup_error.hpp"
#include "host/fake_tree.hpp"
#include "host/files.hpp"

namespace dnnsuite::host {
namespace {

static_assert(std::is_nothrow_move_constructible_v<Process>);

Command shell(const std::string& script) {
    return {.arguments = {"sh", "-c", script}, .environment = {"PATH=/bin:/usr/bin", "X=7"}};
}

ExitStatus run(const Command& command) {
    Process process = Process::start(command, nullptr);
    EXPECT_EQ(process.method(), "no group");
    const auto status = process.wait(30);
    EXPECT_TRUE(status.has_value());
    return status.value_or(ExitStatus{});
}

std::string failure(const Command& command, const Cgroup* group = nullptr) {
    try {
        Process::start(command, group);
    } catch (const CgroupError& error) {
        return error.kind + ": " + error.what();
    }
    return "";
}

TEST(Launch, CodesAndSignals) {
    EXPECT_EQ(run(shell("exit $X")).code, 7);
    EXPECT_EQ(run(shell("kill -TERM $$")).signal, SIGTERM);
    EXPECT_GT(run(shell("true")).peak_resident_bytes, 0);
}

TEST(Launch, FilesFolderAndCpus) {
    FakeTree tree;
    const std::string path = tree.root + "/out";
    const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ASSERT_GE(file, 0);
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &allowed)) ++cpu;
    // No pipe in it: one end would be open in the shell itself for a moment.
    Command command = shell("pwd; grep Cpus_allowed_list /proc/self/status; ls /proc/$$/fd; echo no >&2");
    command.folder = tree.root;
    command.output = command.error = file;
    command.cpus = {cpu};
    EXPECT_EQ(run(command).code, 0);
    ::close(file);
    EXPECT_EQ(read_text(path), tree.root + "\nCpus_allowed_list:\t" + std::to_string(cpu) + "\n0\n1\n2\nno");
}

TEST(Launch, SignalsArriveAsInAnyOtherProcess) {
    ::signal(SIGPIPE, SIG_IGN);  // as Python does
    EXPECT_EQ(run(shell("kill -PIPE $$")).signal, SIGPIPE);
    ::signal(SIGPIPE, SIG_DFL);
    Process process = Process::start(shell("sleep 60 & wait"), nullptr);
    EXPECT_FALSE(process.wait(0).has_value());
    process.send(SIGKILL, true);
    EXPECT_EQ(process.wait(30)->signal, SIGKILL);
    process.send(SIGKILL, false);  // too late, and harmless
}

TEST(Launch, AnyLengthOfTimeMayBeWaited) {
    for (const double timeout_s : {3e6, 1e300, std::numeric_limits<double>::infinity()})
        EXPECT_EQ(Process::start(shell("exit 3"), nullptr).wait(timeout_s)->code, 3) << timeout_s;
    Process process = Process::start(shell("sleep 60"), nullptr);
    EXPECT_FALSE(process.wait(0.01).has_value());
    for (const double timeout_s : {-1.0, -1e300, std::nan("")})
        EXPECT_THROW(process.wait(timeout_s), InvalidArgument) << timeout_s;
    process.send(SIGKILL, true);
    EXPECT_EQ(process.wait(30)->signal, SIGKILL);
}

bool is_a_child(pid_t id) {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(id), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

TEST(Launch, ADroppedProcessIsReapedWhenItEnds) {
    pid_t ended = 0, running = 0;
    {
        const Process process = Process::start(shell("true"), nullptr);
        ended = process.id();
        siginfo_t info{};
        ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(ended), &info, WEXITED | WNOWAIT), 0);
    }
    EXPECT_FALSE(is_a_child(ended));
    running = Process::start(shell("exec sleep 60"), nullptr).id();
    EXPECT_TRUE(is_a_child(running));
    ::kill(running, SIGKILL);
    for (int tries = 0; tries < 3000 && is_a_child(running); ++tries) ::usleep(10'000);
    EXPECT_FALSE(is_a_child(running));
}

TEST(Launch, AProcessThatWasMovedFromHasNone) {
    Process first = Process::start(shell("sleep 60"), nullptr);
    Process second(std::move(first));
    EXPECT_EQ(first.id(), -1);  // NOLINT(bugprone-use-after-move)
    first.send(SIGKILL, true);  // to nobody
    EXPECT_FALSE(first.wait(30).has_value());
    EXPECT_FALSE(second.wait(0).has_value());
    second.send(SIGKILL, true);
    EXPECT_EQ(second.wait(30)->signal, SIGKILL);
}

TEST(Launch, FailuresNameTheStep) {
    EXPECT_NE(failure({.arguments = {"nonesuch-program"}}).find("LaunchError: control group: execute"),
              std::string::npos);
    EXPECT_NE(failure({.arguments = {"/etc/passwd"}}).find("execute /etc/passwd: Permission denied"),
              std::string::npos);
    Command command = shell("true");
    command.folder = "/nowhere";
    EXPECT_NE(failure(command).find("change to the folder /nowhere"), std::string::npos);
    command = shell("true");
    command.output = 999;
    EXPECT_NE(failure(command).find("set up files"), std::string::npos);
    command = shell("true");
    command.cpus = {60000};
    EXPECT_NE(failure(command).find("set the CPUs"), std::string::npos);
    command.cpus = {-1};
    EXPECT_THROW(Process::start(command, nullptr), InvalidArgument);
    EXPECT_THROW(Process::start({}, nullptr), InvalidArgument);
}

TEST(Launch, AGroupThatCannotBeEntered) {
    FakeTree tree;  // a folder of no cgroup: clone3 refuses, attaching fails too
    std::filesystem::create_directories(tree.root + "/g");
    const Cgroup group = Cgroup::adopt({{2, tree.root + "/g", {}}});
    EXPECT_NE(failure(shell("true"), &group).find("enter the group"), std::string::npos);
}

TEST(Launch, LimitsMemory) {
    Command command = shell("ulimit -d");
    FakeTree tree;
    const int file = ::open((tree.root + "/out").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    command.output = file;
    command.data_limit_bytes = 64 << 20;
    EXPECT_EQ(run(command).code, 0);
    ::close(file);
    EXPECT_EQ(read_text(tree.root + "/out"), "65536");
}

}  // namespace
}  // namespace dnnsuite::host
