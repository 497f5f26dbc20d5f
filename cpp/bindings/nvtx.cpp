// SPDX-License-Identifier: MIT
#include "gpu/nvtx.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/c_function.hpp"
#include "bindings/shown.hpp"
#include "gpu/cuda_events.hpp"
#include "gpu/cuda_runtime.hpp"

namespace py = pybind11;
using py::literals::operator""_a;

namespace dnnsuite::bindings {

namespace {

/// A name's range for `with`, against CPython itself: pybind11's call alone would cost fifty times what it does.
struct NvtxRange {
    PyObject_HEAD;
    gpu::NvtxName name;
    long long step;
};

PyObject* range_enter(PyObject* object, PyObject*) {
    const auto& self = *reinterpret_cast<NvtxRange*>(object);
    gpu::nvtx_push(self.name, self.step);
    Py_INCREF(object);
    return object;
}

PyObject* range_exit(PyObject*, PyObject* const*, Py_ssize_t) {
    gpu::nvtx_pop();
    Py_RETURN_NONE;
}

PyObject* range_push(PyObject* object, PyObject* step) {
    const long long payload = PyLong_AsLongLong(step);
    if (payload == -1 && PyErr_Occurred() != nullptr) return nullptr;
    gpu::nvtx_push(reinterpret_cast<NvtxRange*>(object)->name, payload);
    Py_RETURN_NONE;
}

PyObject* range_pop(PyObject*, PyObject*) {
    gpu::nvtx_pop();
    Py_RETURN_NONE;
}

PyObject* range_get_step(PyObject* object, void*) {
    return PyLong_FromLongLong(reinterpret_cast<NvtxRange*>(object)->step);
}

int range_set_step(PyObject* object, PyObject* value, void*) {
    if (value == nullptr) {
        PyErr_SetString(PyExc_AttributeError, "step cannot be deleted");
        return -1;
    }
    const long long step = PyLong_AsLongLong(value);
    if (step == -1 && PyErr_Occurred() != nullptr) return -1;
    reinterpret_cast<NvtxRange*>(object)->step = step;
    return 0;
}

void range_dealloc(PyObject* object) {
    PyTypeObject* const type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyMethodDef range_methods[] = {
    {"push", range_push, METH_O,
     "push(self, step: int) -> None\n\nBegin the range in this thread, with the payload `step`."},
    {"pop", range_pop, METH_NOARGS, "pop(self) -> None\n\nEnd the innermost range of this thread."},
    {"__enter__", range_enter, METH_NOARGS, "__enter__(self) -> NvtxRange\n\nPush, with the payload `self.step`."},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(range_exit)), METH_FASTCALL,
     "__exit__(self, *error: object) -> None\n\nPop."},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef range_properties[] = {
    {"step", range_get_step, range_set_step, "Payload of the ranges that `with` begins.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot range_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(range_dealloc)},
    {Py_tp_methods, range_methods},
    {Py_tp_getset, range_properties},
    {Py_tp_doc, const_cast<char*>("A name for NVTX ranges in the domain `dnnsuite`.")},
    {0, nullptr},
};
PyType_Spec range_spec = {"dnnsuite._C.NvtxRange", sizeof(NvtxRange), 0, kFactoryMade, range_slots};

py::object make_range(const py::type& type, const std::string& name) {
    const gpu::NvtxName registered = gpu::nvtx_name(name);
    auto* const self = allocate<NvtxRange>(type, py::module_::import("dnnsuite._C").attr("NvtxRange"));
    self->name = registered;
    self->step = 0;
    return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(self));
}

void init_events(py::module_& m) {
    using gpu::CudaEvents;
    py::class_<CudaEvents>(m, "CudaEvents", "Pairs of CUDA events from a pool, resolved when they happen to be over.")
        .def(py::init([](std::int64_t pairs) {
                 return std::make_unique<CudaEvents>(gpu::EventFunctions::of_the_runtime(), pairs);
             }),
             "pairs"_a = 1024, "Raises Unavailable without a driver, a device or libcudart.")
        .def("set_stream", &CudaEvents::set_stream, "stream"_a, "Record in this cudaStream_t from now on.")
        .def("begin", &CudaEvents::begin, "key"_a, "Begin the piece of work `key`.")
        .def("end", &CudaEvents::end, "key"_a, "End the piece of work.")
        .def("collect", &CudaEvents::collect, py::call_guard<py::gil_scoped_release>(), "Resolve without waiting.")
        .def("finish", &CudaEvents::finish, py::call_guard<py::gil_scoped_release>(), "Wait for the device; resolve.")
        .def(
            "take",
            [](CudaEvents& self) {
                std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
                for (const auto& [key, gpu_ns] : self.take()) pairs.emplace_back(key, gpu_ns);
                return pairs;
            },
            "(key, nanoseconds on the device) of what was resolved since the last call.")
        .def_property_readonly("pending", &CudaEvents::pending, "Ended, and not yet over on the device.")
        .def_property_readonly("dropped", &CudaEvents::dropped, "Without a free pair, or refused by CUDA.")
        .def_property_readonly("last_error", &CudaEvents::last_error, "CUDA's status of the last refusal, or 0.")
        .def("__repr__", shown({"pending", "dropped", "last_error"}));
}

}  // namespace

void init_nvtx(py::module_& m) {
    m.attr("NvtxRange") = py::reinterpret_steal<py::object>(PyType_FromSpec(&range_spec));
    m.def("make_nvtx_range", &make_range, "type"_a, "name"_a,
          "An `NvtxRange`, or an object of a class derived from it. Raises Unavailable in a build without NVTX.");
    m.def(
        "nvtx_mark", [](const std::string& name, std::int64_t step) { gpu::nvtx_mark(gpu::nvtx_name(name), step); },
        "name"_a, "step"_a = 0, "Mark an instant.");
    m.def(
        "nvtx_start",
        [](const std::string& name, std::int64_t step) { return gpu::nvtx_start(gpu::nvtx_name(name), step); },
        "name"_a, "step"_a = 0, "Begin a range of the process; returns what `nvtx_stop` takes.");
    m.def("nvtx_stop", &gpu::nvtx_stop, "range"_a, "End the range, from any thread.");
    m.def("cuda_profiler_start", &gpu::cuda_profiler_start, py::call_guard<py::gil_scoped_release>(),
          "cudaProfilerStart. Raises Unavailable without a driver, a device or libcudart.");
    m.def("cuda_profiler_stop", &gpu::cuda_profiler_stop, py::call_guard<py::gil_scoped_release>(),
          "cudaProfilerStop. Raises as cuda_profiler_start.");
    init_events(m);
}

}  // namespace dnnsuite::bindings
