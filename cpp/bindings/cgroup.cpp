// SPDX-License-Identifier: MIT
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>

#include "bindings/shown.hpp"
#include "host/cgroup.hpp"
#include "host/group_tree.hpp"
#include "host/hierarchy.hpp"
#include "host/launch.hpp"

namespace py = pybind11;
using py::literals::operator""_a;
using Waiting = py::call_guard<py::gil_scoped_release>;

namespace dnnsuite::bindings {

namespace {

using Optional = std::optional<long long>;
using Text = std::optional<std::string>;

host::Limits limits(const Text& cpus, const Text& mems, Optional memory_bytes, std::optional<double> cpu_quota,
                    Optional processes, bool exclusive) {
    return {cpus, mems, memory_bytes, cpu_quota, processes, exclusive};
}

py::list folders(const std::vector<host::Branch>& branches) {
    py::list all;
    for (const auto& b : branches)
        all.append(py::dict("version"_a = b.version, "folder"_a = b.folder, "controllers"_a = b.controllers));
    return all;
}

py::dict counters(const host::Cgroup& group) {
    const host::GroupCounters c = group.counters();
    return py::dict("memory_peak_bytes"_a = c.memory_peak_bytes, "oom_kills"_a = c.oom_kills, "oom_here"_a = c.oom_here,
                    "cpu_seconds"_a = c.cpu_seconds, "throttled"_a = c.throttled, "forks_refused"_a = c.forks_refused);
}

py::list applied(const host::Cgroup& group) {
    py::list all;
    for (const auto& limit : group.applied())
        all.append(py::dict("controller"_a = limit.controller, "file"_a = limit.file, "wanted"_a = limit.wanted,
                            "found"_a = limit.found));
    return all;
}

void init_group(py::module_& m) {
    using host::Cgroup;
    py::class_<Cgroup>(m, "Cgroup", "A control group for one run, in one or more hierarchies.")
        .def_static(
            "adopt",
            [](const std::vector<std::pair<int, std::string>>& given) {
                std::vector<host::Branch> branches;
                for (const auto& [version, folder] : given) branches.push_back({version, folder, {}});
                return Cgroup::adopt(std::move(branches));
            },
            "folders"_a, "A group that another process left, as (version, folder) of each hierarchy.")
        .def("attach", &Cgroup::attach, "process"_a, "Move a process in; memory it has stays charged where it was.")
        .def("processes", &Cgroup::processes, "Ids of the processes in it and below it.")
        .def("kill", &Cgroup::kill, "timeout_s"_a = 5.0, Waiting(),
             "Kill all but this process, wait for their end; returns the ids that are left.")
        .def("counters", &counters, "Use of each resource: a dict; None where the kernel does not count it.")
        .def("remove", &Cgroup::remove, Waiting(), "Remove the folders. Raises CgroupBusy with processes inside.")
        .def_property_readonly(
            "folders", [](const Cgroup& group) { return folders(group.branches()); },
            "Version, folder and controllers in each hierarchy.")
        .def_property_readonly("applied", &applied, "Each limit as wanted and as found by reading it back.")
        .def("__repr__", shown({"folders"}));
}

void init_tree(py::module_& m) {
    using host::GroupTree;
    py::class_<GroupTree>(m, "GroupTree", "A place for a supervisor's groups; puts everything back when closed.")
        .def(py::init<const std::string&, const std::string&, const std::string&, const std::vector<std::string>&>(),
             "root"_a, "parent"_a, "name"_a, "controllers"_a,
             "Make the folder `name` below `parent` (\"\": where this process may) in each hierarchy that has one of\n"
             "the controllers. Raises CgroupError's kinds; controllers that cannot be had are in `missing`.")
        .def(
            "make",
            [](const GroupTree& tree, const std::string& name, const Text& cpus, const Text& mems,
               Optional memory_bytes, std::optional<double> cpu_quota, Optional processes, bool exclusive) {
                return tree.make(name, limits(cpus, mems, memory_bytes, cpu_quota, processes, exclusive));
            },
            "name"_a, py::kw_only(), "cpus"_a = py::none(), "mems"_a = py::none(), "memory_bytes"_a = py::none(),
            "cpu_quota"_a = py::none(), "processes"_a = py::none(), "exclusive"_a = false,
            "A group with these limits, each read back.")
        .def("close", &GroupTree::close, Waiting(), "Kill and remove what is left, put everything back.")
        .def_property_readonly("folders", [](const GroupTree& tree) { return folders(tree.branches()); })
        .def_property_readonly("missing", &GroupTree::missing, "Controller → why it cannot be had.")
        .def("__repr__", shown({"folders", "missing"}));
}

void init_process(py::module_& m) {
    using host::Process;
    py::class_<Process>(m, "Process", "A process that was started in a group.")
        .def_property_readonly("id", &Process::id)
        .def_property_readonly("method", &Process::method, "Means by which it entered its group.")
        .def("send", &Process::send, "signal"_a, "to_group"_a = false, "Send a signal; nothing after its end.")
        .def(
            "wait",
            [](Process& process, double timeout_s) -> py::object {
                std::optional<host::ExitStatus> status;
                {
                    const py::gil_scoped_release waiting;
                    status = process.wait(timeout_s);
                }
                if (!status) return py::none();
                return py::dict("code"_a = status->code, "signal"_a = status->signal,
                                "cpu_seconds"_a = status->cpu_seconds,
                                "peak_resident_bytes"_a = status->peak_resident_bytes);
            },
            "timeout_s"_a, "Its end (code, signal, cpu_seconds, peak_resident_bytes), or None while it runs.")
        .def("__repr__", shown({"id", "method"}));
    m.def(
        "launch",
        [](const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
           const py::object& group, const std::string& folder, std::tuple<int, int, int> files,
           const std::vector<int>& cpus, const std::vector<int>& mems, Optional data_limit_bytes, bool new_session,
           bool close_files) {
            const auto [input, output, error] = files;
            const host::Command command{arguments, environment, folder,           input,       output,     error,
                                        cpus,      mems,        data_limit_bytes, new_session, close_files};
            const auto* inside = group.is_none() ? nullptr : group.cast<const host::Cgroup*>();
            const py::gil_scoped_release starting;
            return Process::start(command, inside);
        },
        "arguments"_a, "environment"_a, "group"_a = py::none(), py::kw_only(), "folder"_a = "",
        "files"_a = py::make_tuple(-1, -1, -1), "cpus"_a = std::vector<int>{}, "mems"_a = std::vector<int>{},
        "data_limit_bytes"_a = py::none(), "new_session"_a = true, "close_files"_a = true,
        "Start a program inside the group from its first instruction on. Raises LaunchError naming the step.");
}

}  // namespace

void init_cgroup(py::module_& m) {
    init_group(m);
    init_tree(m);
    init_process(m);
    m.def(
        "read_hierarchies",
        [](const std::string& root) {
            py::list all;
            for (const auto& h : host::read_hierarchies(root))
                all.append(py::dict("version"_a = h.version, "controllers"_a = h.controllers,
                                    "mount_point"_a = h.mount_point, "own"_a = h.own, "read_only"_a = h.read_only));
            return all;
        },
        "root"_a = "", "The mounted trees of control groups, and this process's group in each.");
}

}  // namespace dnnsuite::bindings
