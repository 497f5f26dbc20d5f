// SPDX-License-Identifier: MIT
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>

#include "bindings/shown.hpp"
#include "host/clock.hpp"
#include "host/exit.hpp"
#include "host/heap.hpp"
#include "host/step_timer.hpp"

namespace py = pybind11;
using py::literals::operator""_a;

namespace dnnsuite::bindings {

namespace {

/// A read-only numpy array over the timer's own memory; its base is the timer, which it keeps alive.
template <std::span<const std::int64_t> (host::StepTimer::*values)() const noexcept>
py::array_t<std::int64_t> view(const py::object& timer) {
    const std::span<const std::int64_t> seen = (timer.cast<const host::StepTimer&>().*values)();
    py::array_t<std::int64_t> array(static_cast<py::ssize_t>(seen.size()), seen.data(), timer);
    array.attr("setflags")("write"_a = false);
    return array;
}

void init_step_timer(py::module_& m) {
    using host::StepTimer;
    py::class_<StepTimer>(m, "StepTimer",
                          "Start, end and number of items of each step, in memory set aside beforehand.\n\n"
                          "The views are numpy arrays [count] of int64 without a copy: read-only, of the\n"
                          "steps kept so far, and they keep the timer alive.")
        .def(py::init<std::int64_t>(), "capacity"_a, "Room for `capacity` steps. Raises InvalidArgument when negative.")
        .def("start", &StepTimer::start, "Begin a step now.")
        .def("stop", &StepTimer::stop, "items"_a,
             "End the step now. Raises Error without a start, or when the timer is full.")
        .def("lap", &StepTimer::lap, "items"_a, "End a step and begin the next at the same instant.")
        .def("clear", &StepTimer::clear, "Forget all steps. Earlier views see the steps that follow.")
        .def("__len__", &StepTimer::count)
        .def_property_readonly("capacity", &StepTimer::capacity, "Steps there is room for.")
        .def_property_readonly("count", &StepTimer::count, "Steps kept.")
        .def_property_readonly("starts_ns", &view<&StepTimer::starts_ns>, "Start of each step, on `now_ns`.")
        .def_property_readonly("stops_ns", &view<&StepTimer::stops_ns>, "End of each step, on `now_ns`.")
        .def_property_readonly("items", &view<&StepTimer::items>, "Items that each step finished.")
        .def("__repr__", shown({"capacity", "count"}));
}

}  // namespace

void init_host(py::module_& m) {
    m.def("now_ns", &host::now_ns, "Nanoseconds of CLOCK_MONOTONIC, the same clock as `time.monotonic_ns()`.");
    init_step_timer(m);
    m.def("heap_retain", &host::heap_retain,
          "Keep freed memory in the process, so that buffers as large as a step's are not page-faulted anew.\n\n"
          "Process-wide, and may be repeated. Returns False where the C library is not glibc.");
    m.def("heap_release", &host::heap_release,
          "Give free memory back to the system and undo `heap_retain`.\n\n"
          "The threshold of glibc above which a block is mapped on its own stays at 128 KiB from then on.\n"
          "Returns False where the C library is not glibc.");
    m.def("exit_without_destructors", &host::exit_without_destructors,
          "Have this process, a forked child, end in `exit` without libraries' destructors, its status unchanged.\n\n"
          "Returns False where the C library is not glibc.");
}

}  // namespace dnnsuite::bindings
