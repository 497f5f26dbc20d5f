// SPDX-License-Identifier: MIT

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "gpu/library.hpp"

namespace py = pybind11;
using py::literals::operator""_a;

namespace dnnsuite::bindings {

void init_library(py::module_& m) {
    m.def("add_library_folder", &gpu::add_library_folder, "folder"_a, "Look for vendors' libraries there too.");
    m.def("library_folders", &gpu::library_folders,
          "List the folders of vendors' libraries, in the order of the search.");
    m.def(
        "library_path",
        [](const std::string& name, const std::string& remedy) { return gpu::Library::open(name, remedy).path(); },
        "name"_a, "remedy"_a = "",
        "The file of a vendor's library, which is opened for it. Raises Unavailable saying where it was looked for.");
}

}  // namespace dnnsuite::bindings
