// SPDX-License-Identifier: MIT
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bindings/shown.hpp"
#include "host/perf_event.hpp"
#include "host/stream.hpp"

namespace py = pybind11;
using py::literals::operator""_a;

namespace dnnsuite::bindings {

namespace {

void init_perf_event(py::module_& m) {
    using host::PerfGroup;
    using host::PerfValue;
    py::class_<PerfValue>(m, "PerfValue", "Count of one counter of a `PerfGroup`.")
        .def(py::init<std::uint64_t, std::uint64_t, std::uint64_t>(), "raw"_a, "enabled_ns"_a, "running_ns"_a)
        .def_readonly("raw", &PerfValue::raw)
        .def_readonly("enabled_ns", &PerfValue::enabled_ns, "Time in which it was to count.")
        .def_readonly("running_ns", &PerfValue::running_ns, "Time in which it did count.")
        .def_property_readonly("scaled", &PerfValue::scaled,
                               "`raw` scaled to the whole of `enabled_ns`; NaN when it never ran.")
        .def_property_readonly("multiplexed", &PerfValue::multiplexed,
                               "True if it counted part of the time only, so that `scaled` is an estimate.")
        .def("__repr__", shown({"raw", "enabled_ns", "running_ns"}));
    py::class_<PerfGroup>(m, "PerfGroup", "Counters of one thread that count over the same instants (perf_event_open).")
        .def(py::init<int, const std::vector<std::string>&>(), "tid"_a, "names"_a,
             "`tid` 0 is the caller. Raises Unavailable when the kernel refuses, with the reason and the way out.")
        .def("enable", &PerfGroup::enable, "Go on counting, from where it was.")
        .def("disable", &PerfGroup::disable)
        .def("read", &PerfGroup::read, "A `PerfValue` for each of `names`.")
        .def_property_readonly("names", &PerfGroup::names)
        .def_property_readonly("user_only", &PerfGroup::user_only,
                               "True if the kernel's own instructions are left out.")
        .def("__repr__", shown({"names", "user_only"}));
    m.def(
        "perf_events",
        [] {
            std::vector<py::tuple> all;
            for (const host::PerfEvent& event : host::perf_events())
                all.push_back(py::make_tuple(event.name, event.unit, event.definition));
            return all;
        },
        "(name, unit, definition) of every event that a `PerfGroup` knows.");
}

void init_stream(py::module_& m) {
    using host::Bandwidth;
    py::class_<Bandwidth>(m, "Bandwidth", "One measurement of `stream_triad`.")
        .def_readonly("best_bytes_per_s", &Bandwidth::best_bytes_per_s)
        .def_readonly("median_bytes_per_s", &Bandwidth::median_bytes_per_s)
        .def_readonly("bytes_per_thread", &Bandwidth::bytes_per_thread)
        .def_readonly("instruction_set", &Bandwidth::instruction_set)
        .def("__repr__", shown({"best_bytes_per_s", "median_bytes_per_s", "bytes_per_thread", "instruction_set"}));
    m.def("stream_triad", &host::stream_triad, "cpus"_a, "bytes_per_thread"_a, "repeats"_a = 5,
          "least_ns"_a = 20'000'000, py::call_guard<py::gil_scoped_release>(),
          "Memory bandwidth by STREAM's triad, one bound thread for each entry of `cpus` (-1: not bound).\n\n"
          "`bytes_per_thread` is the size of the three arrays together, 24 bytes an element are counted, and each of\n"
          "`repeats` lasts at least `least_ns`. Raises InvalidArgument, and Error when a CPU is refused.");
    m.def(
        "spin",
        [](std::int64_t iterations) {
            const host::Spin spun = host::spin(iterations);
            return std::pair(spun.wall_ns, spun.cpu_ns);
        },
        "iterations"_a, py::call_guard<py::gil_scoped_release>(),
        "(wall ns, CPU ns of this thread) of a fixed piece of arithmetic that needs no memory.");
}

}  // namespace

void init_counters(py::module_& m) {
    init_perf_event(m);
    init_stream(m);
}

}  // namespace dnnsuite::bindings
