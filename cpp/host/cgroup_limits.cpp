// SPDX-License-Identifier: MIT
#include "host/cgroup_limits.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/error.hpp"
#include "host/cgroup_error.hpp"
#include "host/cpu_list.hpp"
#include "host/files.hpp"

namespace dnnsuite::host {

namespace {

constexpr long long period_us = 100'000;  // the kernel's own default

class Writer {
  public:
    Writer(std::string folder, std::string controller)
        : folder_(std::move(folder)), controller_(std::move(controller)) {}

    /// Writes a value and reads it back from `shown`, which is `file` itself where none is given.
    const AppliedLimit& write(const std::string& file, const std::string& value, const std::string& shown = "") {
        const std::string path = folder_ + "/" + file;
        if (const int error = write_text(path, value)) refuse("write", path, value, error);
        const std::string& read = shown.empty() ? file : shown;
        applied.push_back({controller_, read, value, read_text(folder_ + "/" + read).value_or("")});
        return applied.back();
    }

    void write_list(const std::string& file, const std::string& value, const std::string& shown) {
        const AppliedLimit& limit = write(file, value, shown);
        if (parse_cpu_list(limit.found) != parse_cpu_list(value))
            throw CgroupError("CpusetNotEffective", "write", folder_ + "/" + file, value, 0,
                              "the kernel gives '" + limit.found + "': the groups above have no more than that");
    }

    void write_number(const std::string& file, long long value, long long grain = 1) {
        const AppliedLimit& limit = write(file, std::to_string(value));
        const auto found = parse_integer(limit.found);
        if (!found || *found > value || *found <= value - grain)
            throw CgroupError("LimitRejected", "write", folder_ + "/" + file, std::to_string(value), 0,
                              "the kernel made '" + limit.found + "' of it");
    }

    bool has(const std::string& file) const { return ::access((folder_ + "/" + file).c_str(), F_OK) == 0; }

    const std::string& folder() const { return folder_; }

    std::vector<AppliedLimit> applied;

  private:
    std::string folder_, controller_;
};

void limit_cpuset(Writer& writer, int version, const Limits& limits) {
    const std::string effective = version == 2 ? ".effective" : "";
    if (version == 1) inherit_cpuset(writer.folder());
    if (limits.mems) writer.write_list("cpuset.mems", *limits.mems, "cpuset.mems" + effective);
    if (limits.cpus) writer.write_list("cpuset.cpus", *limits.cpus, "cpuset.cpus" + effective);
    if (!limits.exclusive) return;
    if (version == 1) {
        writer.write("cpuset.cpu_exclusive", "1");
    } else if (const auto& state = writer.write("cpuset.cpus.partition", "root"); state.found != "root") {
        throw CgroupError("PartitionInvalid", "write", writer.folder() + "/cpuset.cpus.partition", state.found, 0,
                          "the groups above must be partitions with CPUs to spare, and no other group may use these");
    }
}

void limit_memory(Writer& writer, int version, const Limits& limits) {
    const long long page = ::sysconf(_SC_PAGESIZE);
    if (version == 2) {
        writer.write_number("memory.max", *limits.memory_bytes, page);
        if (writer.has("memory.swap.max")) writer.write("memory.swap.max", "0");
        if (writer.has("memory.oom.group")) writer.write("memory.oom.group", "1");
        return;
    }
    writer.write_number("memory.limit_in_bytes", *limits.memory_bytes, page);
    if (writer.has("memory.memsw.limit_in_bytes"))  // memory and swap together: no swap
        writer.write_number("memory.memsw.limit_in_bytes", *limits.memory_bytes, page);
}

void limit_time(Writer& writer, int version, const Limits& limits) {
    const auto quota = std::to_string(static_cast<long long>(*limits.cpu_quota * static_cast<double>(period_us)));
    if (version == 2) {
        writer.write("cpu.max", quota + " " + std::to_string(period_us));
    } else {
        writer.write("cpu.cfs_period_us", std::to_string(period_us));
        writer.write("cpu.cfs_quota_us", quota);
    }
    if (writer.applied.back().found != writer.applied.back().wanted)
        throw CgroupError("LimitRejected", "write", writer.folder() + "/cpu", quota, 0,
                          "the kernel made '" + writer.applied.back().found + "' of it");
}

void check(const Limits& limits) {
    if (limits.memory_bytes && *limits.memory_bytes < ::sysconf(_SC_PAGESIZE))
        throw InvalidArgument("memory of " + std::to_string(*limits.memory_bytes) + " bytes is less than a page");
    if (limits.cpu_quota && !(*limits.cpu_quota >= 0.01 && *limits.cpu_quota <= 65536))
        throw InvalidArgument("cpu_quota " + std::to_string(*limits.cpu_quota) + ": 0.01 to 65536 CPUs are accepted");
    if (limits.processes && *limits.processes < 0)
        throw InvalidArgument("processes " + std::to_string(*limits.processes) + " is negative");
    for (const auto* list : {&limits.cpus, &limits.mems})
        if (*list && parse_cpu_list(**list).empty()) throw InvalidArgument("an empty list of CPUs or nodes");
}

}  // namespace

std::vector<std::string> Limits::controllers() const {
    std::vector<std::string> names;
    if (cpus || mems) names.push_back("cpuset");
    if (memory_bytes) names.push_back("memory");
    if (cpu_quota) names.push_back("cpu");
    if (processes) names.push_back("pids");
    return names;
}

void inherit_cpuset(const std::string& folder) {
    const std::string above = std::filesystem::path(folder).parent_path().string();
    for (const char* file : {"/cpuset.mems", "/cpuset.cpus"}) {  // in this order, as the kernel wants nodes first
        if (!read_text(folder + file).value_or("").empty()) continue;
        const std::string value = read_text(above + file).value_or("");
        if (const int error = write_text(folder + file, value)) refuse("write", folder + file, value, error);
    }
}

std::vector<AppliedLimit> apply_limits(int version, const std::string& folder,
                                       const std::vector<std::string>& controllers, const Limits& limits) {
    check(limits);
    std::vector<AppliedLimit> applied;
    for (const std::string& controller : limits.controllers()) {
        if (std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) continue;
        Writer writer(folder, controller);
        if (controller == "cpuset") limit_cpuset(writer, version, limits);
        if (controller == "memory") limit_memory(writer, version, limits);
        if (controller == "cpu") limit_time(writer, version, limits);
        if (controller == "pids") writer.write_number("pids.max", *limits.processes);
        applied.insert(applied.end(), writer.applied.begin(), writer.applied.end());
    }
    return applied;
}

}  // namespace dnnsuite::host
