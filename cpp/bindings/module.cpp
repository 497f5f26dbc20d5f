// SPDX-License-Identifier: MIT
// Python's door to everything that is not a tensor. No torch header may be included here: torch carries its
// own copy of pybind11. Tensors cross as torch.ops.dnnsuite operators instead (cpp/fused).
#include <pybind11/pybind11.h>

namespace dnnsuite::bindings {
void init_host(pybind11::module_& m);
}

PYBIND11_MODULE(_C, m) {
    m.doc() = "The instruments of dnnsuite: clock, timers, statistics.";
    dnnsuite::bindings::init_host(m);
}
