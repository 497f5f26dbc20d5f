// SPDX-License-Identifier: MIT
#include "host/cgroup.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "host/cgroup_error.hpp"
#include "host/files.hpp"
#include "host/hierarchy.hpp"

namespace dnnsuite::host {

namespace {

using Clock = std::chrono::steady_clock;

void check_name(const std::string& name) {
    const auto accepted = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
               c == '.';
    };
    const bool good =
        !name.empty() && name.size() <= 200 && name.front() != '.' && std::all_of(name.begin(), name.end(), accepted);
    if (!good) throw InvalidArgument("group name '" + name + "': 1 to 200 of A-Z a-z 0-9 _ - . are accepted");
}

bool has(const std::vector<std::string>& names, const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

void signal_all(const std::vector<int>& processes) {
    for (const int process : processes)
        if (process != ::getpid()) ::kill(process, SIGKILL);
}

/// Version 1: stops the processes, so that none forks while they are counted; thaws when it goes.
class Freeze {
  public:
    explicit Freeze(const std::vector<Branch>& branches) {
        for (const Branch& branch : branches)
            if (branch.version == 1 && has(branch.controllers, "freezer")) state_ = branch.folder + "/freezer.state";
        if (state_.empty()) return;
        write_text(state_, "FROZEN");
        for (int i = 0; i < 100 && read_text(state_) != "FROZEN"; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ~Freeze() {
        if (!state_.empty()) write_text(state_, "THAWED");
    }
    Freeze(const Freeze&) = delete;
    Freeze& operator=(const Freeze&) = delete;

  private:
    std::string state_;
};

int remove_folders(const std::string& folder) {
    for (const std::string& name : list_names(folder, true)) remove_folders(folder + "/" + name);
    for (int i = 0; i < 200; ++i) {  // the last process may be on its way out still
        if (::rmdir(folder.c_str()) == 0 || errno == ENOENT) return 0;
        if (errno != EBUSY || !group_processes(folder, true).empty()) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return errno;
}

}  // namespace

Cgroup Cgroup::create(const std::vector<Branch>& above, const std::string& name, const Limits& limits) {
    check_name(name);
    Cgroup group{std::vector<Branch>{}};  // grows as folders are made: its destructor removes just those
    for (const Branch& parent : above) {
        const std::string folder = parent.folder + "/" + name;
        if (::mkdir(folder.c_str(), 0755) != 0) refuse("make", folder, "", errno);
        group.branches_.push_back({parent.version, folder, parent.controllers});
        if (parent.version == 1 && has(parent.controllers, "cpuset")) inherit_cpuset(folder);
        const auto applied = apply_limits(parent.version, folder, parent.controllers, limits);
        group.applied_.insert(group.applied_.end(), applied.begin(), applied.end());
    }
    return group;
}

Cgroup::Cgroup(Cgroup&& other) noexcept
    : branches_(std::exchange(other.branches_, {})), applied_(std::move(other.applied_)) {}

Cgroup& Cgroup::operator=(Cgroup&& other) noexcept {
    std::swap(branches_, other.branches_);
    std::swap(applied_, other.applied_);
    return *this;
}

Cgroup::~Cgroup() {
    try {
        if (branches_.empty()) return;
        if (!processes().empty()) kill(5.0);
        for (auto branch = branches_.rbegin(); branch != branches_.rend(); ++branch) remove_folders(branch->folder);
    } catch (...) {  // out of memory: what is left is found by its name later
    }
}

void Cgroup::attach(int process) const {
    for (const Branch& branch : branches_) {
        const std::string path = branch.folder + "/cgroup.procs";
        if (const int error = write_text(path, std::to_string(process)))
            refuse("attach", path, std::to_string(process), error);
    }
}

std::vector<int> Cgroup::processes() const {
    std::set<int> found;
    for (const Branch& branch : branches_)
        for (const int process : group_processes(branch.folder, true)) found.insert(process);
    return {found.begin(), found.end()};
}

std::vector<int> Cgroup::kill(double timeout_s) const {
    const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
    std::vector<int> left = processes();
    const bool self = std::find(left.begin(), left.end(), ::getpid()) != left.end();
    while (true) {
        if (!self)
            for (const Branch& branch : branches_)
                if (branch.version == 2) write_text(branch.folder + "/cgroup.kill", "1");
        {
            const Freeze frozen(branches_);
            signal_all(processes());
        }  // a signal reaches frozen processes when they thaw
        const auto round = Clock::now() + std::chrono::milliseconds(50);
        do {
            left = processes();
            std::erase(left, ::getpid());
            if (left.empty() || Clock::now() > deadline) return left;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        } while (Clock::now() < round);
    }
}

GroupCounters Cgroup::counters() const {
    GroupCounters counters;
    const auto number = [](const std::string& path) {
        const auto text = read_text(path);
        return text ? parse_integer(*text) : std::nullopt;
    };
    for (const Branch& branch : branches_) {
        const auto value = [&](const char* file, const char* key) {
            return value_of(read_text(branch.folder + file).value_or(""), key);
        };
        const bool v2 = branch.version == 2;
        if (has(branch.controllers, "memory")) {
            counters.memory_peak_bytes = number(branch.folder + (v2 ? "/memory.peak" : "/memory.max_usage_in_bytes"));
            counters.oom_kills = value(v2 ? "/memory.events" : "/memory.oom_control", "oom_kill");
            if (v2) counters.oom_here = value("/memory.events", "oom");
        }
        if (has(branch.controllers, "pids")) counters.forks_refused = value("/pids.events", "max");
        if (has(branch.controllers, "cpu")) counters.throttled = value("/cpu.stat", "nr_throttled");
        const auto usage = v2 ? value("/cpu.stat", "usage_usec") : number(branch.folder + "/cpuacct.usage");
        if (usage) counters.cpu_seconds = static_cast<double>(*usage) * (v2 ? 1e-6 : 1e-9);
    }
    return counters;
}

void Cgroup::remove() {
    while (!branches_.empty()) {
        const std::string folder = branches_.back().folder;
        if (const int error = remove_folders(folder)) {
            std::string inside;
            for (const int process : group_processes(folder, true))
                inside.append(inside.empty() ? "" : " ").append(std::to_string(process));
            if (error == EBUSY)
                throw CgroupError("CgroupBusy", "remove", folder, "", error, "processes inside: " + inside);
            refuse("remove", folder, "", error);
        }
        branches_.pop_back();
    }
}

}  // namespace dnnsuite::host
