// SPDX-License-Identifier: MIT
// Python's door to everything that is not a tensor. No torch header may be included here: torch carries its
// own copy of pybind11. Tensors cross as torch.ops.dnnsuite operators instead (cpp/fused).
#include <pybind11/pybind11.h>

#include <exception>

#include "base/error.hpp"
#include "host/cgroup_error.hpp"

namespace py = pybind11;

namespace dnnsuite::bindings {

void init_activity(py::module_& m);
void init_base(py::module_& m);
void init_batches(py::module_& m);
void init_decisions(py::module_& m);
void init_host(py::module_& m);
void init_cgroup(py::module_& m);
void init_counters(py::module_& m);
void init_gpu_counters(py::module_& m);
void init_guards(py::module_& m);
void init_library(py::module_& m);
void init_nvtx(py::module_& m);
void init_spans(py::module_& m);
void init_topology(py::module_& m);

namespace {

void raise(const char* name, const char* message) {
    py::set_error(py::module_::import("dnnsuite.errors").attr(name), message);
}

void translate(std::exception_ptr thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const InvalidArgument& error) {
        raise("InvalidArgument", error.what());
    } catch (const host::CgroupError& error) {
        const py::object kind = py::module_::import("dnnsuite.pin.errors").attr(error.kind.c_str());
        py::set_error(kind, kind(error.operation, error.path, error.value, error.number, error.hint));
    } catch (const Unavailable& error) {
        const py::object kind = py::module_::import("dnnsuite.errors").attr("Unavailable");
        py::set_error(kind, kind(error.what_is_missing, error.looked_in, error.remedy));
    } catch (const Error& error) {
        raise("Error", error.what());
    }
}

}  // namespace

}  // namespace dnnsuite::bindings

PYBIND11_MODULE(_C, m) {
    m.doc() = "The instruments of dnnsuite: clock, timers, statistics.";
    py::register_local_exception_translator(dnnsuite::bindings::translate);
    dnnsuite::bindings::init_base(m);
    dnnsuite::bindings::init_batches(m);
    dnnsuite::bindings::init_decisions(m);
    dnnsuite::bindings::init_host(m);
    dnnsuite::bindings::init_topology(m);
    dnnsuite::bindings::init_cgroup(m);
    dnnsuite::bindings::init_counters(m);
    dnnsuite::bindings::init_library(m);
    dnnsuite::bindings::init_activity(m);
    dnnsuite::bindings::init_nvtx(m);
    dnnsuite::bindings::init_spans(m);
    dnnsuite::bindings::init_gpu_counters(m);
    dnnsuite::bindings::init_guards(m);
}
