// SPDX-License-Identifier: MIT
#pragma once

#include <pybind11/pybind11.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace dnnsuite::bindings {

/// A `__repr__` that names the class and these attributes with their values: numbers with six digits, long arrays by
/// their length.
inline auto shown(std::initializer_list<const char*> attributes) {
    return [names = std::vector<const char*>(attributes)](const pybind11::object& self) {
        namespace py = pybind11;
        std::string text = py::str(py::type::of(self).attr("__name__")).cast<std::string>() + "(";
        for (const char* name : names) {
            const py::object value = self.attr(name);
            if (text.back() != '(') text += ", ";
            text += std::string(name) + "=";
            if (py::isinstance<py::float_>(value))
                text += py::str("{:.6g}").format(value).cast<std::string>();
            else if (py::hasattr(value, "shape"))
                text += std::to_string(py::len(value)) + " values";
            else
                text += py::repr(value).cast<std::string>();
        }
        return text + ")";
    };
}

}  // namespace dnnsuite::bindings
