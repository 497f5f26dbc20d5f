// SPDX-License-Identifier: MIT
#include "host/hierarchy.hpp"

#include <algorithm>
#include <map>

#include "host/files.hpp"

namespace dnnsuite::host {

namespace {

/// mountinfo writes a space as \040.
std::string unescape(const std::string& text) {
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size()) {
            plain.push_back(static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8)));
            i += 3;
        } else {
            plain.push_back(text[i]);
        }
    }
    return plain;
}

/// Controllers joined by commas ("" is version 2) → path of this process's group.
std::map<std::string, std::string> own_paths(const std::string& root) {
    std::map<std::string, std::string> paths;
    for (const std::string& line : split(read_text(root + "/proc/self/cgroup").value_or(""), '\n')) {
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second != std::string::npos) paths[line.substr(first + 1, second - first - 1)] = line.substr(second + 1);
    }
    return paths;
}

struct Mount {
    std::string root, point, type, options;
    bool read_only = false;
};

std::vector<Mount> mounts(const std::string& root) {
    std::vector<Mount> found;
    for (const std::string& line : split(read_text(root + "/proc/self/mountinfo").value_or(""), '\n')) {
        const auto words = split(line, ' ');
        const auto dash = std::find(words.begin(), words.end(), "-");
        if (words.size() < 10 || words.end() - dash < 4 || !dash[1].starts_with("cgroup")) continue;
        const bool read_only = words[5] == "ro" || words[5].starts_with("ro,") || dash[3].starts_with("ro");
        found.push_back({unescape(words[3]), root + unescape(words[4]), dash[1], dash[3], read_only});
    }
    return found;
}

/// Folder of the group `path` in a mount that shows the tree from `mount.root` on; empty when it is outside.
std::string place(const Mount& mount, const std::string& path) {
    if (path.starts_with("/..")) return "";
    const std::string from = mount.root == "/" ? "" : mount.root;
    if (!path.starts_with(from) || (path.size() > from.size() && path[from.size()] != '/')) return "";
    const std::string rest = path.substr(from.size());
    return mount.point + (rest == "/" ? "" : rest);
}

/// The key of /proc/self/cgroup that a version 1 mount belongs to: one whose controllers are all mount options.
std::string key_of(const Mount& mount, const std::map<std::string, std::string>& paths) {
    const auto options = split(mount.options, ',');
    for (const auto& [key, path] : paths) {
        const auto names = split(key, ',');
        const auto mounted = [&](const std::string& name) {
            return std::find(options.begin(), options.end(), name) != options.end();
        };
        if (!names.empty() && std::all_of(names.begin(), names.end(), mounted)) return key;
    }
    return "";
}

}  // namespace

std::vector<Hierarchy> read_hierarchies(const std::string& root) {
    const auto paths = own_paths(root);
    std::map<std::string, Hierarchy> found;
    for (const Mount& mount : mounts(root)) {
        const int version = mount.type == "cgroup2" ? 2 : 1;
        const std::string key = version == 2 ? "" : key_of(mount, paths);
        if (version == 1 && (key.empty() || key.starts_with("name="))) continue;
        const auto path = paths.find(key);
        Hierarchy hierarchy{.version = version,
                            .controllers = split(key, ','),
                            .mount_point = mount.point,
                            .own = path == paths.end() ? "" : place(mount, path->second),
                            .read_only = mount.read_only};
        if (version == 2)
            hierarchy.controllers = split(read_text(mount.point + "/cgroup.controllers").value_or(""), ' ');
        const auto known = found.find(key);
        if (known == found.end() || (known->second.own.empty() && !hierarchy.own.empty())) found[key] = hierarchy;
    }
    std::vector<Hierarchy> hierarchies;
    for (auto& [key, hierarchy] : found) hierarchies.push_back(std::move(hierarchy));
    return hierarchies;
}

std::vector<int> group_processes(const std::string& folder, bool below) {
    std::vector<int> processes;
    for (const std::string& line : split(read_text(folder + "/cgroup.procs").value_or(""), '\n'))
        if (const auto process = parse_integer(line); process && *process > 0)
            processes.push_back(static_cast<int>(*process));
    if (below)
        for (const std::string& name : list_names(folder, true)) {
            const auto more = group_processes(folder + "/" + name, true);
            processes.insert(processes.end(), more.begin(), more.end());
        }
    return processes;
}

}  // namespace dnnsuite::host
