// SPDX-License-Identifier: MIT
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cxxabi.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "gpu/activity_columns.hpp"
#include "gpu/activity_decode.hpp"
#include "gpu/activity_session.hpp"
#include "gpu/cupti.hpp"
#include "gpu/driver.hpp"

namespace py = pybind11;
using py::literals::operator""_a;

namespace dnnsuite::bindings {

namespace {

#ifdef DNNSUITE_HAS_CUPTI

std::string demangled(const std::string& name) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(
        name.starts_with("_Z") ? abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status) : nullptr, &std::free);
    return text == nullptr ? name : text.get();
}

/// A numpy array over a column's memory, which `owner` keeps alive.
template <class Value>
py::object view(const std::vector<Value>& column, const py::object& owner) {
    using Number = std::conditional_t<std::is_same_v<Value, gpu::Name>, std::int32_t, Value>;
    const py::dtype type = py::dtype::of<Number>();
    return py::array(type, {static_cast<py::ssize_t>(column.size())}, {}, column.data(), owner);
}

py::dict to_python(gpu::ActivityColumns&& moved) {
    auto* const columns = new gpu::ActivityColumns(std::move(moved));
    const py::capsule owner(columns, [](void* held) { delete static_cast<gpu::ActivityColumns*>(held); });
    py::dict tables;
    gpu::ActivityColumns::each_table(*columns, [&](const char* name, const auto& table) {
        py::dict arrays;
        std::remove_cvref_t<decltype(table)>::each(
            table, [&](const char* column, const auto& values) { arrays[column] = view(values, owner); });
        tables[name] = arrays;
    });
    py::list strings;
    for (const std::string& name : columns->strings.all()) {
        const std::string text = demangled(name);
        strings.append(py::reinterpret_steal<py::object>(
            PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "replace")));
    }
    py::dict counts("records"_a = columns->records, "incomplete"_a = columns->incomplete,
                    "unknown"_a = columns->unknown, "damaged"_a = columns->damaged);
    return py::dict("tables"_a = tables, "strings"_a = strings, "counts"_a = counts);
}

std::unique_ptr<gpu::ActivitySession> open_session(const std::vector<std::string>& tables) {
    gpu::require_driver();
    return std::make_unique<gpu::ActivitySession>(
        gpu::ActivitySession::Machine{gpu::cupti_activity_api(), gpu::synchronize_devices}, tables);
}

py::dict decode(const py::buffer& buffer) {
    const py::buffer_info info = buffer.request();
    const auto bytes = static_cast<std::size_t>(info.size * info.itemsize);
    std::vector<std::uint64_t> aligned(bytes / sizeof(std::uint64_t) + 1);
    if (bytes > 0) {
        std::memcpy(aligned.data(), info.ptr, bytes);
    }
    auto* const walk = bytes == 0 ? nullptr : gpu::cupti_activity_api().get_next_record;
    gpu::ActivityColumns columns = [&] {
        const py::gil_scoped_release release;
        return gpu::decode_activity({reinterpret_cast<std::uint8_t*>(aligned.data()), bytes}, walk);
    }();
    return to_python(std::move(columns));
}

py::dict losses(const gpu::ActivitySession& session) {
    const gpu::ActivitySession::Losses lost = session.losses();
    return py::dict("dropped_records"_a = lost.dropped, "rejected_buffers"_a = lost.rejected,
                    "failed_buffers"_a = lost.failed);
}

py::dict take(gpu::ActivitySession& session) {
    gpu::ActivityColumns columns = [&] {
        const py::gil_scoped_release release;
        return session.take();
    }();
    return to_python(std::move(columns));
}

void init_session(py::module_& m) {
    using gpu::ActivitySession;
    const py::call_guard<py::gil_scoped_release> unlocked;
    py::class_<ActivitySession>(m, "ActivitySession", "CUPTI's activity records of this process; one at a time.")
        .def(py::init(&open_session), "tables"_a, unlocked,
             "Take CUPTI, to record these tables.\n\n"
             "Raises Unavailable without a GPU, or when another profiler holds CUPTI.")
        .def("start", &ActivitySession::start, unlocked, "Wait for the devices, then record.")
        .def("stop", &ActivitySession::stop, unlocked, "Wait for the devices, fetch the records, record no more.")
        .def("take", &take, "Tables of columns [rows], without a copy, their strings, and counts; they are then gone.")
        .def("close", &ActivitySession::close, unlocked, "Give CUPTI back. May be repeated.")
        .def_property_readonly("losses", &losses, "Numbers of records and buffers that were lost.")
        .def_property_readonly("window_ns", &ActivitySession::window_ns,
                               "Begin and end of the last window, on `now_ns`; zeros before there was one.")
        .def_property_readonly("recording", &ActivitySession::recording, "True while a window is open.");
    m.def("decode_activity", &decode, "buffer"_a,
          "The records in a buffer that CUPTI filled in this process: its pointers are followed.\n\n"
          "Tables of columns [rows], strings and counts, as `ActivitySession.take` gives.");
    m.def(
        "cupti_function_name",
        [](std::uint8_t domain, std::uint32_t callback) {
            return gpu::cupti_function_name(gpu::cupti_activity_api(), domain, callback);
        },
        "domain"_a, "callback"_a, "Name of a recorded call: `domain` 1 is the runtime, 0 the driver.");
}

#else

[[noreturn]] void missing() {
    throw Unavailable("dnnsuite was compiled without CUPTI's headers", "",
                      "install the CUDA toolkit, or set CUDA_HOME, and install dnnsuite again");
}

void init_session(py::module_& m) {
    for (const char* const name : {"ActivitySession", "decode_activity", "cupti_function_name"}) {
        m.def(name, [](const py::args&, const py::kwargs&) { missing(); }, "Missing: this build has none.");
    }
}

#endif

}  // namespace

void init_activity(py::module_& m) {
    m.def("require_driver", &gpu::require_driver, py::call_guard<py::gil_scoped_release>(),
          "Raises Unavailable unless NVIDIA's driver is there and shows a GPU.");
    init_session(m);
}

}  // namespace dnnsuite::bindings
