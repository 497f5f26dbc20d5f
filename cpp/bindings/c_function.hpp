// SPDX-License-Identifier: MIT
// For types written against CPython itself, where pybind11's call would cost more than the work.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>

#include "base/error.hpp"

namespace dnnsuite::bindings {

/// Runs `body` for CPython's C interface, which no exception may cross: one is set as Python's, and the result is null.
template <class Body>
PyObject* guarded(const Body& body) noexcept {
    namespace py = pybind11;
    try {
        try {
            return body();
        } catch (const py::error_already_set&) {
            throw;
        } catch (const std::exception& error) {
            py::set_error(py::module_::import("dnnsuite.errors").attr("Error"), error.what());
        }
    } catch (py::error_already_set& error) {
        error.restore();
    } catch (...) {
        PyErr_SetString(PyExc_SystemError, "dnnsuite: a C++ exception of unknown type");
    }
    return nullptr;
}

/// A new object of `type`, which is `base` or derived from it, with its memory zeroed.
/// Throws InvalidArgument for another type: its memory would be laid out otherwise.
template <class Object>
Object* allocate(const pybind11::type& type, const pybind11::handle& base) {
    auto* const python_type = reinterpret_cast<PyTypeObject*>(type.ptr());
    auto* const python_base = reinterpret_cast<PyTypeObject*>(base.ptr());
    if (!PyType_IsSubtype(python_type, python_base))
        throw InvalidArgument(std::string("type must be ") + python_base->tp_name +
                              " or a class derived from it, not " + python_type->tp_name);
    PyObject* const made = python_type->tp_alloc(python_type, 0);
    if (made == nullptr) throw pybind11::error_already_set();
    return reinterpret_cast<Object*>(made);
}

/// Flags of a type that only its factory makes: an object made by calling the type would have null inside.
constexpr unsigned kFactoryMade = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION;

}  // namespace dnnsuite::bindings
