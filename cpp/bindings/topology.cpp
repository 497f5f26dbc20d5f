// SPDX-License-Identifier: MIT
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "host/cpu_list.hpp"
#include "host/topology.hpp"

namespace py = pybind11;
using py::literals::operator""_a;

namespace dnnsuite::bindings {

namespace {

/// Plain dictionaries: a topology is written to JSON and read back on another machine.
py::dict as_dict(const host::Topology& topology) {
    py::list cpus, nodes, devices;
    for (const auto& c : topology.cpus)
        cpus.append(py::dict("cpu"_a = c.cpu, "core"_a = c.core, "package"_a = c.package, "node"_a = c.node,
                             "l3"_a = c.l3, "type"_a = c.type));
    for (const auto& n : topology.nodes)
        nodes.append(py::dict("node"_a = n.node, "memory_bytes"_a = n.memory_bytes, "distances"_a = n.distances));
    for (const auto& d : topology.devices)
        devices.append(py::dict("address"_a = d.address, "vendor"_a = d.vendor, "node"_a = d.node, "cpus"_a = d.cpus));
    return py::dict("cpus"_a = cpus, "nodes"_a = nodes, "devices"_a = devices,
                    "memory_bytes"_a = topology.memory_bytes);
}

}  // namespace

void init_topology(py::module_& m) {
    m.def("parse_cpu_list", &host::parse_cpu_list, "text"_a,
          "The numbers of the kernel's list format, `0-3,8`, sorted. Raises InvalidArgument for anything else.");
    m.def("format_cpu_list", &host::format_cpu_list, "numbers"_a,
          "The shortest list format of the numbers, `0-3,8`. Raises InvalidArgument for a negative one.");
    m.def(
        "read_topology", [](const std::string& root) { return as_dict(host::read_topology(root)); }, "root"_a = "",
        "CPUs, NUMA nodes, PCI devices and memory of this machine, or of the /sys and /proc under `root`.\n\n"
        "Raises Error when there are no CPUs to be read.");
}

}  // namespace dnnsuite::bindings
