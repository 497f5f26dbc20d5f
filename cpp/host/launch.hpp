// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "host/cgroup.hpp"

namespace dnnsuite::host {

/// A program to start. Files are numbers of open descriptors; -1 is this process's own.
struct Command {
    std::vector<std::string> arguments{};    ///< the first is looked for in the PATH of `environment`
    std::vector<std::string> environment{};  ///< "NAME=value"
    std::string folder{};                    ///< to start in; empty: this process's
    int input = -1, output = -1, error = -1;
    std::vector<int> cpus{};                         ///< to run on; empty: not set
    std::vector<int> mems{};                         ///< NUMA nodes to take memory from; empty: not set
    std::optional<long long> data_limit_bytes = {};  ///< RLIMIT_DATA, of each process on its own
    bool new_session = true;                         ///< out of reach of the terminal's Ctrl-C
    bool close_files = true;                         ///< every descriptor but the three
};

/// End of a process.
struct ExitStatus {
    int code = 0;    ///< of exit; meaningless after a signal
    int signal = 0;  ///< 0: it exited
    double cpu_seconds = 0;
    long long peak_resident_bytes = 0;  ///< of the largest process
};

/// A process that was started here. It outlives this object (its group is what ends it) and is reaped all the same.
class Process {
  public:
    /// Starts the command inside the group from its first instruction on, or, without a group, just so.
    /// Throws CgroupError with the kind LaunchError, naming the step that failed.
    static Process start(const Command& command, const Cgroup* group);

    Process(Process&& other) noexcept;
    Process& operator=(Process&&) = delete;
    ~Process();

    /// Its end, if it ends within `timeout_s`, which may be infinite. The process is reaped.
    /// Throws InvalidArgument for a negative time or NaN.
    const std::optional<ExitStatus>& wait(double timeout_s);
    /// Sends a signal to it, or to all of its session's first process group. Nothing happens after its end.
    void send(int signal, bool to_group) const;

    pid_t id() const noexcept { return id_; }
    /// "clone_into_cgroup", "attach_before_exec" or "no group".
    const std::string& method() const noexcept { return method_; }

  private:
    Process(pid_t id, int descriptor, std::string method)
        : id_(id), descriptor_(descriptor), method_(std::move(method)) {}

    pid_t id_;
    int descriptor_;  // pidfd
    std::string method_;
    std::optional<ExitStatus> status_;
};

}  // namespace dnnsuite::host
