// SPDX-License-Identifier: MIT
#include "host/cgroup_error.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace dnnsuite::host {

namespace {

std::string message(const std::string& operation, const std::string& path, const std::string& value, int number,
                    const std::string& hint) {
    std::string text = "control group: " + operation;
    if (!value.empty()) text.append(" '").append(value).append("'");
    if (!path.empty()) text.append(" ").append(path);
    if (number != 0) text.append(": ").append(std::strerror(number));
    if (!hint.empty()) text.append("; ").append(hint);
    return text;
}

struct Meaning {
    const char* kind;
    const char* hint;
};

Meaning meaning_of(const std::string& path, int number) {
    const bool limit_file = path.find("cgroup.") == std::string::npos;
    switch (number) {
        case EROFS:
            return {"CgroupReadOnly",
                    "the container has its control groups read-only: podman run --security-opt "
                    "unmask=/sys/fs/cgroup, docker run --privileged, or use --backend affinity"};
        case EACCES:
        case EPERM:
            if (limit_file && ::access(path.c_str(), W_OK) == 0)
                return {"LimitRejected", "the group above has less than this"};
            return {"CgroupPermissionDenied",
                    "the group is not yours: start with `systemd-run --user --scope -p Delegate=yes -- CMD`, as root, "
                    "or use --backend affinity"};
        case EBUSY:
            if (path.ends_with("limit_in_bytes"))
                return {"LimitBelowUsage", "the group already uses more; give more, or a new group"};
            return {"CgroupBusy", "processes are inside: a group with limits for groups below it may hold none itself"};
        case EOPNOTSUPP: return {"InvalidDomain", "the group or one above it is threaded (see its cgroup.type)"};
        case ENOSPC: return {"CpusetEmpty", "its cpuset.cpus and cpuset.mems must be set first"};
        case EINVAL:
        case ERANGE:
            return {"LimitRejected",
                    "the kernel does not take this value: is it among the machine's CPUs and nodes, "
                    "and no less than a page?"};
        case EEXIST:
            return {"CgroupExists", "left by another run? `dnnsuite pin ls` tells, `dnnsuite pin clean` removes"};
        case ENOENT: return {"ControllerUnavailable", "the controller is not switched on for this group"};
        default: return {"CgroupError", ""};
    }
}

}  // namespace

CgroupError::CgroupError(std::string kind_, std::string operation_, std::string path_, std::string value_, int number_,
                         std::string hint_)
    : Error(message(operation_, path_, value_, number_, hint_)), kind(std::move(kind_)),
      operation(std::move(operation_)), path(std::move(path_)), value(std::move(value_)), number(number_),
      hint(std::move(hint_)) {}

void refuse(const std::string& operation, const std::string& path, const std::string& value, int number) {
    const Meaning meaning = meaning_of(path, number);
    throw CgroupError(meaning.kind, operation, path, value, number, meaning.hint);
}

}  // namespace dnnsuite::host
