// SPDX-License-Identifier: MIT
#include <pybind11/pybind11.h>

#include "host/clock.hpp"

namespace dnnsuite::bindings {

void init_host(pybind11::module_& m) {
    m.def("now_ns", &host::now_ns, "Nanoseconds of CLOCK_MONOTONIC, the same clock as `time.monotonic_ns()`.");
}

}  // namespace dnnsuite::bindings
