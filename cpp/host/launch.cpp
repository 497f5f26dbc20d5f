// SPDX-License-Identifier: MIT
#include "host/launch.hpp"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <exception>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "host/cgroup_error.hpp"
#include "host/files.hpp"

extern char** environ;

namespace dnnsuite::host {

namespace {

enum Stage : int { ready, join, affinity, memory_policy, data_limit, files, directory, execute };
constexpr const char* stage_names[] = {
    "start",        "enter the group", "set the CPUs",         "set the memory nodes",
    "limit memory", "set up files",    "change to the folder", "execute"};
constexpr auto by_descriptor = static_cast<idtype_t>(3);  // P_PIDFD, which older C libraries do not name
constexpr int mask_words = 1024;                          // CPUs and nodes below 65536

struct Report {
    int stage, error;
};

/// Everything the child needs, made before it is: between fork and exec it may not allocate.
struct Prepared {
    std::vector<char*> arguments, environment;
    std::string program, folder;
    std::vector<std::string> join_paths;
    std::array<unsigned long, mask_words> cpus{}, mems{};
    const Command* command = nullptr;
    int report = -1;
};

void set_bits(std::array<unsigned long, mask_words>& mask, const std::vector<int>& numbers) {
    constexpr int bits = 8 * sizeof(unsigned long);
    for (const int number : numbers) {
        if (number < 0 || number >= bits * mask_words)
            throw InvalidArgument("CPU or node " + std::to_string(number) + " is not below 65536");
        mask[static_cast<std::size_t>(number / bits)] |= 1UL << (number % bits);
    }
}

std::string find_program(const Command& command) {
    const std::string& name = command.arguments.front();
    if (name.find('/') != std::string::npos) return name;
    std::string path = "/usr/local/bin:/usr/bin:/bin";
    for (const std::string& entry : command.environment)
        if (entry.starts_with("PATH=")) path = entry.substr(5);
    for (const std::string& folder : split(path, ':'))
        if (const std::string program = folder + "/" + name; ::access(program.c_str(), X_OK) == 0) return program;
    throw CgroupError("LaunchError", "execute", name, "", ENOENT, "it is in none of " + path);
}

[[noreturn]] void give_up(const Prepared& prepared, Stage stage) {
    const Report report{stage, errno};
    [[maybe_unused]] const auto written = ::write(prepared.report, &report, sizeof report);
    ::_exit(125);
}

void reset_signals() {
    for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);  // Python ignores SIGPIPE
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
}

void set_files(const Prepared& prepared) {
    const int given[] = {prepared.command->input, prepared.command->output, prepared.command->error};
    int kept[3];
    for (int i = 0; i < 3; ++i)  // out of the way first: a given descriptor may be 0, 1 or 2 itself
        if ((kept[i] = given[i] < 0 ? -1 : ::fcntl(given[i], F_DUPFD_CLOEXEC, 3)) < 0 && given[i] >= 0)
            give_up(prepared, files);
    for (int i = 0; i < 3; ++i)
        if (kept[i] >= 0 && ::dup2(kept[i], i) < 0) give_up(prepared, files);
    if (prepared.command->close_files)
        ::syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC, from Linux 5.11 */);
}

/// The child, from its first instruction to exec.
[[noreturn]] void become(const Prepared& prepared, bool inside) {
    const Command& command = *prepared.command;
    for (const std::string& path : prepared.join_paths) {
        if (inside && path.empty()) continue;
        const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
        if (file < 0 || ::write(file, "0", 1) != 1) give_up(prepared, join);
        ::close(file);
    }
    if (command.new_session) ::setsid();
    if (!command.cpus.empty() && ::syscall(SYS_sched_setaffinity, 0, sizeof prepared.cpus, prepared.cpus.data()) < 0)
        give_up(prepared, affinity);
    if (!command.mems.empty() &&
        ::syscall(SYS_set_mempolicy, MPOL_BIND, prepared.mems.data(), 4096UL) < 0 /* no kernel has more nodes */)
        give_up(prepared, memory_policy);
    if (command.data_limit_bytes) {
        const auto bytes = static_cast<rlim_t>(*command.data_limit_bytes);
        const rlimit limit{bytes, bytes};
        if (::setrlimit(RLIMIT_DATA, &limit) < 0) give_up(prepared, data_limit);
    }
    set_files(prepared);
    if (!prepared.folder.empty() && ::chdir(prepared.folder.c_str()) < 0) give_up(prepared, directory);
    reset_signals();
    const Report report{ready, 0};
    if (::write(prepared.report, &report, sizeof report) != sizeof report) ::_exit(125);
    ::execve(prepared.program.c_str(), prepared.arguments.data(), prepared.environment.data());
    give_up(prepared, execute);
}

struct Child {
    pid_t id = -1;
    int descriptor = -1;
};

/// clone3 into the group `folder` (-1: beside this process). Its id is -1, and errno set, where that is refused.
Child clone(int folder) {
    Child child;
    clone_args how{};
    how.flags = CLONE_PIDFD | (folder >= 0 ? CLONE_INTO_CGROUP : 0);
    how.pidfd = reinterpret_cast<std::uintptr_t>(&child.descriptor);
    how.exit_signal = SIGCHLD;
    how.cgroup = static_cast<std::uint64_t>(folder >= 0 ? folder : 0);
    child.id = static_cast<pid_t>(::syscall(SYS_clone3, &how, sizeof how));
    return child;
}

/// Message of the child before exec; empty if it was killed before it could write.
std::optional<Report> listen(int pipe) {
    std::optional<Report> last;
    Report report{};
    ssize_t count = 0;
    while ((count = ::read(pipe, &report, sizeof report)) != 0)
        if (count == sizeof report)
            last = report;
        else if (errno != EINTR)
            break;
    return last;
}

struct Attempt {
    Child child;
    std::optional<Report> report;
};

Attempt attempt(Prepared& prepared, const std::string& folder) {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) < 0) throw CgroupError("LaunchError", "start", "", "", errno, "");
    const int group = folder.empty() ? -1 : ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    prepared.report = pipe[1];
    sigset_t all, before;  // no handler of this process may run in the child
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    Attempt result;
    if (folder.empty() || group >= 0) {
        result.child = clone(group);
        if (result.child.id == 0) become(prepared, !folder.empty());
    }
    const int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::close(pipe[1]);
    if (group >= 0) ::close(group);
    if (result.child.id > 0) result.report = listen(pipe[0]);
    ::close(pipe[0]);
    errno = error;
    return result;
}

void reap(const Child& child) {
    if (child.id <= 0) return;
    while (::waitpid(child.id, nullptr, 0) < 0 && errno == EINTR) continue;
    ::close(child.descriptor);
}

Prepared prepare(const Command& command, const Cgroup* group) {
    if (command.arguments.empty()) throw InvalidArgument("a command without a program");
    Prepared prepared;
    prepared.command = &command;
    prepared.program = find_program(command);
    prepared.folder = command.folder;
    for (const std::string& text : command.arguments) prepared.arguments.push_back(const_cast<char*>(text.c_str()));
    for (const std::string& text : command.environment) prepared.environment.push_back(const_cast<char*>(text.c_str()));
    prepared.arguments.push_back(nullptr);
    prepared.environment.push_back(nullptr);
    set_bits(prepared.cpus, command.cpus);
    set_bits(prepared.mems, command.mems);
    if (group != nullptr)
        for (const Branch& branch : group->branches()) prepared.join_paths.push_back(branch.folder + "/cgroup.procs");
    return prepared;
}

/// Sees to it that a child nobody waits for any more is reaped when it ends, and is no zombie until this process does.
void leave_to_itself(int descriptor) noexcept {
    const auto id = static_cast<id_t>(descriptor);
    siginfo_t info{};
    if (::waitid(by_descriptor, id, &info, WEXITED | WNOHANG) < 0 || info.si_pid != 0)
        return;  // not ours, or reaped now
    const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
    if (own < 0) return;
    sigset_t all, before;  // handlers run in the threads that were there
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread([own] {
            siginfo_t end{};
            while (::waitid(by_descriptor, static_cast<id_t>(own), &end, WEXITED) < 0 && errno == EINTR) continue;
            ::close(own);
        }).detach();
    } catch (const std::exception&) {  // no room for a thread: a zombie is the lesser evil
        ::close(own);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

[[noreturn]] void fail(const Command& command, const Attempt& made) {
    reap(made.child);
    const std::string& program = command.arguments.front();
    if (!made.report)
        throw CgroupError(
            "LaunchError", "start", program, "", made.child.id > 0 ? 0 : errno,
            made.child.id > 0 ? "it was killed before it began" : "no more processes may be in the group, or at all");
    throw CgroupError("LaunchError", stage_names[made.report->stage],
                      made.report->stage == directory ? command.folder : program, "", made.report->error,
                      made.report->stage == join ? "the group has no room for it, or is not yours" : "");
}

}  // namespace

Process Process::start(const Command& command, const Cgroup* group) {
    Prepared prepared = prepare(command, group);
    if (group != nullptr)
        for (std::size_t i = 0; i < group->branches().size(); ++i) {
            if (group->branches()[i].version != 2) continue;
            const std::string path = std::exchange(prepared.join_paths[i], "");  // it is inside from its birth
            const Attempt made = attempt(prepared, group->branches()[i].folder);
            if (made.report && made.report->stage == ready)
                return Process(made.child.id, made.child.descriptor, "clone_into_cgroup");
            if (made.report) fail(command, made);
            if (made.child.id < 0 && errno == EAGAIN)
                fail(command, made);  // no room: attaching would go over the limit
            reap(made.child);         // refused, or killed at once: a kernel or a container that cannot do it
            prepared.join_paths[i] = path;
        }
    const Attempt made = attempt(prepared, "");
    if (!made.report || made.report->stage != ready) fail(command, made);
    return Process(made.child.id, made.child.descriptor, group != nullptr ? "attach_before_exec" : "no group");
}

Process::Process(Process&& other) noexcept
    : id_(std::exchange(other.id_, -1)), descriptor_(std::exchange(other.descriptor_, -1)),
      method_(std::move(other.method_)), status_(std::exchange(other.status_, std::nullopt)) {}

Process::~Process() {
    if (descriptor_ >= 0 && !status_) leave_to_itself(descriptor_);
    if (descriptor_ >= 0) ::close(descriptor_);
}

const std::optional<ExitStatus>& Process::wait(double timeout_s) {
    if (!(timeout_s >= 0))
        throw InvalidArgument("timeout_s must be a number of seconds from 0 on, not " + std::to_string(timeout_s));
    if (status_ || descriptor_ < 0) return status_;
    constexpr double longest_s = 1e9;  // 31 years: a larger number need not fit into a timespec
    const double limited_s = std::min(timeout_s, longest_s);
    const auto whole_s = static_cast<std::time_t>(limited_s);
    const timespec limit{whole_s, static_cast<long>((limited_s - static_cast<double>(whole_s)) * 1e9)};
    pollfd ended{descriptor_, POLLIN, 0};
    if (::ppoll(&ended, 1, &limit, nullptr) <= 0) return status_;
    int status = 0;
    rusage usage{};
    const pid_t reaped = ::wait4(id_, &status, WNOHANG, &usage);
    if (reaped == 0) return status_;
    if (reaped < 0) throw Error("process " + std::to_string(id_) + " was reaped by someone else");
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    status_ = ExitStatus{.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                         .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                         .cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime),
                         .peak_resident_bytes = static_cast<long long>(usage.ru_maxrss) * 1024};
    return status_;
}

void Process::send(int signal, bool to_group) const {
    if (status_ || descriptor_ < 0) return;
    if (to_group)
        ::kill(-id_, signal);
    else
        ::syscall(SYS_pidfd_send_signal, descriptor_, signal, nullptr, 0);
}

}  // namespace dnnsuite::host
