// SPDX-License-Identifier: MIT
#include "host/spans.hpp"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "bindings/c_function.hpp"
#include "bindings/shown.hpp"
#include "gpu/cuda_events.hpp"
#include "gpu/nvtx.hpp"

namespace py = pybind11;
using py::literals::operator""_a;

namespace dnnsuite::bindings {

namespace {

/// One name of a `Spans`: what the hot path calls, against CPython itself, because a call of a bound pybind11 method
/// costs more than the reading that it makes. Owns a reference to what it points to.
struct Span {
    PyObject_HEAD;
    host::Spans* spans;
    gpu::CudaEvents* events;  // nullptr: the host's times alone
    gpu::NvtxName nvtx;       // nullptr: no NVTX
    std::int32_t name;
    PyObject* owners;
};

PyObject* span_begin(PyObject* object, PyObject*) {
    const auto& self = *reinterpret_cast<Span*>(object);
    if (self.nvtx != nullptr) gpu::nvtx_push(self.nvtx, self.spans->step());
    const std::int64_t slot = self.spans->begin(self.name);
    if (self.events != nullptr) self.events->begin(slot);
    Py_RETURN_NONE;
}

PyObject* span_end(PyObject* object, PyObject*) {
    const auto& self = *reinterpret_cast<Span*>(object);
    return guarded([&self]() -> PyObject* {
        const std::int64_t slot = self.spans->end(self.name);
        if (self.events != nullptr) self.events->end(slot);
        if (self.nvtx != nullptr) gpu::nvtx_pop();
        Py_RETURN_NONE;
    });
}

PyObject* span_enter(PyObject* object, PyObject*) {
    Py_DECREF(span_begin(object, nullptr));
    Py_INCREF(object);
    return object;
}

PyObject* span_exit(PyObject* object, PyObject* const*, Py_ssize_t) { return span_end(object, nullptr); }

PyObject* span_name(PyObject* object, void*) {
    const auto& self = *reinterpret_cast<Span*>(object);
    return guarded(
        [&self] { return py::str(self.spans->names().at(static_cast<std::size_t>(self.name))).release().ptr(); });
}

void span_dealloc(PyObject* object) {
    PyTypeObject* const type = Py_TYPE(object);
    Py_XDECREF(reinterpret_cast<Span*>(object)->owners);
    type->tp_free(object);
    Py_DECREF(type);
}

PyMethodDef span_methods[] = {
    {"begin", span_begin, METH_NOARGS,
     "begin(self) -> None\n\nBegin the span now, inside those of this thread that are open."},
    {"end", span_end, METH_NOARGS,
     "end(self) -> None\n\nEnd the span now. Raises Error unless it is this thread's innermost."},
    {"__enter__", span_enter, METH_NOARGS, "__enter__(self) -> Span\n\nSame as begin."},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(span_exit)), METH_FASTCALL,
     "__exit__(self, *error: object) -> None\n\nSame as end."},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef span_properties[] = {
    {"name", span_name, nullptr, "Name that it was registered under.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot span_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(span_dealloc)},
    {Py_tp_methods, span_methods},
    {Py_tp_getset, span_properties},
    {Py_tp_doc, const_cast<char*>("A name whose spans are timed; made by `make_span`, and used again and again.")},
    {0, nullptr},
};
PyType_Spec span_spec = {"dnnsuite._C.Span", sizeof(Span), 0, kFactoryMade, span_slots};

/// A new `type`, which is Span or a class derived from it.
py::object make_span(const py::type& type, const py::object& spans, const std::string& name, const py::object& events,
                     bool nvtx) {
    auto& target = spans.cast<host::Spans&>();
    auto* const timed = events.is_none() ? nullptr : &events.cast<gpu::CudaEvents&>();
    const gpu::NvtxName label = nvtx ? gpu::nvtx_name(name) : nullptr;
    const std::int32_t number = target.add_name(name);
    py::tuple owners = py::make_tuple(spans, events);
    auto* const self = allocate<Span>(type, py::module_::import("dnnsuite._C").attr("Span"));
    self->spans = &target;
    self->events = timed;
    self->nvtx = label;
    self->name = number;
    self->owners = owners.release().ptr();
    return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(self));
}

template <class T>
py::array_t<T> array(const std::vector<T>& values) {
    return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

py::dict columns(const host::Spans& spans) {
    const host::Spans::Columns all = spans.columns();
    py::dict result;
    result["slot"] = array(all.slot);
    result["name"] = array(all.name);
    result["step"] = array(all.step);
    result["depth"] = array(all.depth);
    result["thread"] = array(all.thread);
    result["t0_ns"] = array(all.t0_ns);
    result["t1_ns"] = array(all.t1_ns);
    return result;
}

}  // namespace

void init_spans(py::module_& m) {
    const auto span = py::reinterpret_steal<py::object>(PyType_FromSpec(&span_spec));
    m.attr("Span") = span;
    py::class_<host::Spans>(m, "Spans", "Nested, named intervals of any thread, in memory set aside beforehand.")
        .def(py::init<std::int64_t>(), "capacity"_a, "Room for `capacity` spans. Raises InvalidArgument when negative.")
        .def("columns", &columns,
             "Arrays [n] of the spans that have ended: slot, name (a number), step, depth, thread, t0_ns, t1_ns.")
        .def("names", &host::Spans::names, "The names by their number.")
        .def("clear", &host::Spans::clear, "Forget all spans. Raises Error while one is open.")
        .def_property("step", &host::Spans::step, &host::Spans::set_step, "The step that spans are of from now on.")
        .def_property_readonly("capacity", &host::Spans::capacity, "Spans there is room for.")
        .def_property_readonly("count", &host::Spans::count, "Spans kept, those still open included.")
        .def_property_readonly("dropped", &host::Spans::dropped, "Spans not kept, for want of room or their depth.")
        .def_property_readonly("open", &host::Spans::open, "Spans begun and not ended.")
        .def("__repr__", shown({"capacity", "count", "open", "dropped"}));
    m.def("make_span", &make_span, "type"_a, "spans"_a, "name"_a, "events"_a = py::none(), "nvtx"_a = false,
          "A `Span`, or an object of a class derived from it.");
}

}  // namespace dnnsuite::bindings
