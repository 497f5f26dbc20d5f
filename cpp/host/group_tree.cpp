// SPDX-License-Identifier: MIT
#include "host/group_tree.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/error.hpp"
#include "host/cgroup_error.hpp"
#include "host/files.hpp"

namespace dnnsuite::host {

namespace {

constexpr const char* supervisor_suffix = "-supervisor";

bool has(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

std::string above(const std::string& folder) { return std::filesystem::path(folder).parent_path().string(); }

bool is_below(int process, int ancestor) {
    while (process > 1) {
        if (process == ancestor) return true;
        const std::string stat = read_text("/proc/" + std::to_string(process) + "/stat").value_or("");
        const std::size_t end = stat.rfind(')');  // the name before it may hold anything
        const auto words = end == std::string::npos ? std::vector<std::string>{} : split(stat.substr(end + 1), ' ');
        process = words.size() > 1 ? static_cast<int>(parse_integer(words[1]).value_or(0)) : 0;
    }
    return false;
}

/// Version 1: whether the group has a limit that the one above it does not have.
bool limits_something(const std::string& folder) {
    const auto text = [&](const char* file) { return read_text(folder + file).value_or(""); };
    const auto cpus = read_text(above(folder) + "/cpuset.cpus");
    constexpr long long unlimited = 1LL << 60;  // the kernel writes almost 2^63
    return (cpus && text("/cpuset.cpus") != *cpus) ||
           parse_integer(text("/memory.limit_in_bytes")).value_or(unlimited) < unlimited ||
           parse_integer(text("/cpu.cfs_quota_us")).value_or(-1) > 0 || parse_integer(text("/pids.max")).has_value();
}

std::string base_v1(const Hierarchy& hierarchy) {
    std::string folder = hierarchy.own;
    while (folder.size() > hierarchy.mount_point.size() && !limits_something(folder)) folder = above(folder);
    return folder;
}

const Hierarchy* hierarchy_of(const std::vector<Hierarchy>& hierarchies, const std::string& controller) {
    for (const Hierarchy& hierarchy : hierarchies)
        if (has(hierarchy.controllers, controller)) return &hierarchy;
    return nullptr;
}

}  // namespace

GroupTree::GroupTree(const std::string& root, const std::string& parent, const std::string& name,
                     const std::vector<std::string>& controllers) {
    const auto hierarchies = read_hierarchies(root);
    if (hierarchies.empty())
        throw CgroupError("CgroupNotMounted", "find", root + "/sys/fs/cgroup", "", 0,
                          "none is mounted: mount -t cgroup2 none /sys/fs/cgroup, or give the container its own");
    std::map<const Hierarchy*, std::vector<std::string>> wanted;
    for (const std::string& controller : controllers) {
        const Hierarchy* hierarchy = hierarchy_of(hierarchies, controller);
        if (hierarchy != nullptr)
            wanted[hierarchy].push_back(controller);
        else
            missing_[controller] = "no mounted hierarchy has it: is it in the kernel (/proc/cgroups)?";
    }
    try {
        for (const Hierarchy& hierarchy : hierarchies)
            if (wanted.contains(&hierarchy)) plant(hierarchy, parent, name, wanted[&hierarchy]);
        if (branches_.empty()) return;
        for (const Hierarchy& hierarchy : hierarchies) {  // a group of version 2 beside: it kills and counts best
            if (hierarchy.version != 2 || wanted.contains(&hierarchy)) continue;
            try {
                plant(hierarchy, parent, name, {});
            } catch (const CgroupError&) {  // not granted, and not asked for
            }
        }
        const Hierarchy* freezer = hierarchy_of(hierarchies, "freezer");
        const bool unified =
            std::any_of(branches_.begin(), branches_.end(), [](const Branch& b) { return b.version == 2; });
        if (!unified && freezer != nullptr && !wanted.contains(freezer)) plant(*freezer, parent, name, {"freezer"});
    } catch (...) {
        close();
        throw;
    }
}

GroupTree::~GroupTree() { close(); }

void GroupTree::plant(const Hierarchy& hierarchy, const std::string& parent, const std::string& name,
                      std::vector<std::string> controllers) {
    std::string base;
    if (!parent.empty() && parent != "/") {
        base = hierarchy.mount_point + parent;
        make_parent(hierarchy, base);
    } else if (parent == "/") {
        base = hierarchy.mount_point;
    } else if (hierarchy.own.empty()) {
        throw CgroupError("CgroupNotMounted", "find", hierarchy.mount_point, "", 0,
                          "this process's own group is outside of what is mounted here; name one with --parent");
    } else {
        base = hierarchy.version == 1 ? base_v1(hierarchy) : base_v2(hierarchy, name, !controllers.empty());
    }
    if (hierarchy.version == 2)
        std::erase_if(controllers, [&](const std::string& c) { return !enable(hierarchy.mount_point, base, c); });
    const std::string folder = base + "/" + name;
    if (::mkdir(folder.c_str(), 0755) != 0) refuse("make", folder, "", errno);
    branches_.push_back({hierarchy.version, folder, controllers});
    if (hierarchy.version == 1 && has(controllers, "cpuset")) inherit_cpuset(folder);
    if (hierarchy.version == 2)
        for (const std::string& controller : controllers)
            if (const int error = write_text(folder + "/cgroup.subtree_control", "+" + controller))
                refuse("write", folder + "/cgroup.subtree_control", "+" + controller, error);
}

void GroupTree::make_parent(const Hierarchy& hierarchy, const std::string& folder) {
    if (folder.size() <= hierarchy.mount_point.size()) return;
    make_parent(hierarchy, above(folder));
    if (::mkdir(folder.c_str(), 0755) == 0)
        made_.push_back(folder);
    else if (errno != EEXIST)
        refuse("make", folder, "", errno);
    if (has(hierarchy.controllers, "cpuset") && hierarchy.version == 1) inherit_cpuset(folder);
}

std::string GroupTree::base_v2(const Hierarchy& hierarchy, const std::string& name, bool with_controllers) {
    const std::string& own = hierarchy.own;
    if (own.ends_with(supervisor_suffix)) return above(own);  // another tree of this process moved it there
    const bool true_root = ::access((own + "/cgroup.type").c_str(), F_OK) != 0;
    if (with_controllers && !true_root && !group_processes(own, false).empty())
        evacuate(own, own + "/" + name + supervisor_suffix);
    return own;
}

void GroupTree::evacuate(const std::string& own, const std::string& supervisor) {
    std::string strangers;
    for (const int process : group_processes(own, false))
        if (!is_below(process, ::getpid())) {
            const auto name = read_text("/proc/" + std::to_string(process) + "/comm").value_or("?");
            strangers.append(strangers.empty() ? "" : ", ").append(std::to_string(process)).append(" ").append(name);
        }
    if (!strangers.empty())
        throw CgroupError("CgroupBusy", "take over", own, "", EBUSY,
                          "other processes are in it: " + strangers +
                              "; start with `systemd-run --scope -p Delegate=yes -- CMD` (with --user unless root), or "
                              "name another group with --parent");
    if (::mkdir(supervisor.c_str(), 0755) != 0) refuse("make", supervisor, "", errno);
    own_ = own;
    supervisor_ = supervisor;
    for (int round = 0; round < 100 && !group_processes(own, false).empty(); ++round)  // they may fork meanwhile
        for (const int process : group_processes(own, false)) {
            const int error = write_text(supervisor + "/cgroup.procs", std::to_string(process));
            if (error != 0 && error != ESRCH) refuse("attach", supervisor + "/cgroup.procs", "", error);
        }
}

bool GroupTree::enable(const std::string& mount_point, const std::string& folder, const std::string& controller) {
    if (folder.size() > mount_point.size() && !enable(mount_point, above(folder), controller)) return false;
    const std::string path = folder + "/cgroup.subtree_control";
    const auto words = [&](const char* file) { return split(read_text(folder + file).value_or(""), ' '); };
    if (has(words("/cgroup.subtree_control"), controller)) return true;
    if (!has(words("/cgroup.controllers"), controller)) {
        missing_[controller] = "not in " + folder +
                               "/cgroup.controllers: the group above does not pass it on (systemd: a "
                               "drop-in with Delegate=cpu cpuset io memory pids for user@.service)";
        return false;
    }
    int error = 0;
    for (int i = 0; i < 50; ++i) {  // EBUSY passes where another process is just leaving
        error = write_text(path, "+" + controller);
        if (error != EBUSY) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (error != 0) refuse("write", path, "+" + controller, error);
    enabled_.emplace_back(folder, controller);
    return true;
}

void GroupTree::close() noexcept {
    try {
        const bool planted = !branches_.empty();
        if (planted) Cgroup::adopt(std::exchange(branches_, {})).kill(5.0);
        // The folders went with the group; next the controllers, unless another's groups live by them.
        for (auto entry = enabled_.rbegin(); entry != enabled_.rend(); ++entry) {
            const auto groups = list_names(entry->first, true);
            const bool others = std::any_of(groups.begin(), groups.end(), [&](const std::string& group) {
                const std::string folder = entry->first + "/" + group;
                return folder != supervisor_ && !has(made_, folder);
            });
            if (!others) write_text(entry->first + "/cgroup.subtree_control", "-" + entry->second);
        }
        enabled_.clear();
        if (!supervisor_.empty()) {
            for (const int process : group_processes(supervisor_, false))
                write_text(own_ + "/cgroup.procs", std::to_string(process));
            ::rmdir(std::exchange(supervisor_, "").c_str());
        }
        for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) ::rmdir(folder->c_str());
        made_.clear();
    } catch (...) {  // out of memory; `dnnsuite pin clean` finds what is left
    }
}

}  // namespace dnnsuite::host
