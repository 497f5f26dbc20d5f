// SPDX-License-Identifier: MIT
// The GPU's counters. In a build without CUPTI's headers the same names raise Unavailable.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "gpu/counter_device.hpp"
#include "gpu/counter_host.hpp"
#include "gpu/counter_refusal.hpp"
#include "gpu/counter_sessions.hpp"
#include "gpu/sealed_image.hpp"

namespace py = pybind11;
using py::literals::operator""_a;

namespace dnnsuite::bindings {

namespace {

using Bytes = std::vector<std::uint8_t>;
using Release = py::call_guard<py::gil_scoped_release>;

py::bytes as_bytes(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

Bytes from_bytes(const py::bytes& bytes) {
    const auto view = static_cast<std::string_view>(bytes);
    return {view.begin(), view.end()};
}

gpu::Collection collection_called(const std::string& name) {
    if (name == "ranges") {
        return gpu::Collection::kRanges;
    }
    if (name == "sampling") {
        return gpu::Collection::kSampling;
    }
    throw InvalidArgument("collection '" + name + "'; accepted: ranges, sampling");
}

py::dict as_dict(const gpu::CounterValues& found) {
    return py::dict("names"_a = found.names, "t0_ns"_a = found.t0_ns, "t1_ns"_a = found.t1_ns,
                    "values"_a = found.values);
}

py::dict as_dict(const gpu::MetricInfo& info) {
    return py::dict("type"_a = info.type, "description"_a = info.description, "hardware_unit"_a = info.hardware_unit,
                    "unit"_a = info.unit);
}

void init_host(py::module_& m) {
    m.def("cupti_version", &gpu::cupti_version,
          "CUPTI's version, 130001 for CUDA 13.0. Raises Unavailable without it.");
    m.def("counter_chips", &gpu::counter_chips, "The chips that CUPTI has heard of, as GH100.");
    m.def(
        "counter_refusal",
        [](int number) -> py::object {
            const gpu::CounterRefusal* const refusal = gpu::counter_refusal(number);
            return refusal == nullptr ? py::object(py::none()) : py::make_tuple(refusal->reason, refusal->remedy);
        },
        "number"_a, "(reason, remedy) of a CUPTI error that speaks of the machine, None for other errors.");
    m.def(
        "seal_counter_image", [](const py::bytes& image) { return as_bytes(gpu::seal_image(from_bytes(image))); },
        "image"_a, "A counter-data image of CUPTI's with the seal that `CounterHost.evaluate` asks for.");
    py::class_<gpu::CounterHost>(m, "CounterHost", "A chip's metrics, as CUPTI knows them. Needs no GPU.")
        .def(py::init([](const std::string& chip, const std::string& collection, const py::bytes& availability) {
                 return gpu::open_counter_host(chip, collection_called(collection), from_bytes(availability));
             }),
             "chip"_a, "collection"_a = "ranges", "availability"_a = py::bytes(),
             "Raises Unavailable without CUPTI, and for a chip that it does not know or cannot count on.")
        .def("metrics", &gpu::CounterHost::metrics, "type"_a, "Names without submetric of one type.")
        .def("submetrics", &gpu::CounterHost::submetrics, "metric"_a, "List the submetrics that may follow a name.")
        .def(
            "describe",
            [](const gpu::CounterHost& host, const std::string& name) { return as_dict(host.describe(name)); },
            "metric"_a, "type, description, hardware_unit, unit. Raises InvalidArgument for an unknown name.")
        .def("accepts", &gpu::CounterHost::accepts, "metric"_a, "True if this full name can be collected.")
        .def("max_metrics_per_pass", &gpu::CounterHost::max_metrics_per_pass, "CUPTI's upper bound.")
        .def(
            "configure",
            [](const gpu::CounterHost& host, const std::vector<std::string>& metrics) -> py::object {
                const auto config = host.configure(metrics);
                return config ? py::object(py::make_tuple(config->passes, as_bytes(config->image)))
                              : py::object(py::none());
            },
            "metrics"_a, "(passes, configuration) of these metrics together; None when they cannot be mixed.")
        .def(
            "evaluate",
            [](const gpu::CounterHost& host, const py::bytes& image, const std::vector<std::string>& metrics) {
                const Bytes sealed = from_bytes(image);
                return as_dict(host.evaluate_sealed(sealed.data(), sealed.size(), metrics));
            },
            "image"_a, "metrics"_a,
            "names, t0_ns, t1_ns and values [ranges or samples][metrics] of a sealed image; NaN where nothing was "
            "counted.\n\nRaises Error for anything but an image with an unbroken seal.");
}

void init_device(py::module_& m) {
    py::class_<gpu::CounterDevice, std::shared_ptr<gpu::CounterDevice>>(m, "CounterDevice",
                                                                        "A GPU whose counters are to be read.")
        .def(py::init<int>(), "ordinal"_a = 0, Release(), "Raises Unavailable without driver, GPU or CUPTI.")
        .def_property_readonly("chip", &gpu::CounterDevice::chip)
        .def(
            "availability",
            [](const gpu::CounterDevice& device, const std::string& collection) {
                return as_bytes(device.availability(collection_called(collection)));
            },
            "collection"_a, "Availability image: the GPU's part of its chip's counters, for `CounterHost`.")
        .def(
            "support",
            [](const gpu::CounterDevice& device) {
                py::list all;
                for (const gpu::CounterSupport& one : device.support()) {
                    all.append(py::dict("interface"_a = one.interface, "overall"_a = one.overall,
                                        "conditions"_a = one.conditions));
                }
                return all;
            },
            "Support of each of CUPTI's interfaces on it, with its conditions.");
}

#ifdef DNNSUITE_HAS_CUPTI

py::list segments(gpu::RangeCounters& counters) {
    py::list all;
    for (gpu::RangeSegment& segment : counters.session().take()) {
        all.append(py::dict("group"_a = segment.group, "first_step"_a = segment.first_step, "steps"_a = segment.steps,
                            "dropped"_a = segment.dropped,
                            "image"_a = as_bytes(gpu::seal_image(std::move(segment.image)))));
    }
    return all;
}

py::list windows(gpu::SampledCounters& counters) {
    py::list all;
    for (gpu::SampledWindow& window : counters.sampler().take()) {
        all.append(py::dict("realtime_ns"_a = window.realtime_ns, "monotonic_ns"_a = window.monotonic_ns,
                            "overflows"_a = window.overflows,
                            "image"_a = as_bytes(gpu::seal_image(std::move(window.image))), **as_dict(window.samples)));
    }
    return all;
}

void init_sessions(py::module_& m) {
    py::class_<gpu::RangeCounters>(m, "RangeCounters", "Counters over the steps of a loop; see range_session.hpp.")
        .def(py::init<std::shared_ptr<gpu::CounterDevice>, std::vector<std::vector<std::string>>, bool, std::size_t>(),
             "device"_a, "groups"_a, "kernels"_a = false, "max_ranges"_a = 64, Release())
        .def(
            "start", [](gpu::RangeCounters& c) { c.session().start(); }, Release())
        .def(
            "mark", [](gpu::RangeCounters& c, const std::string& name) { c.session().mark(name); }, "name"_a, Release())
        .def(
            "step", [](gpu::RangeCounters& c) { c.session().step(); }, Release())
        .def(
            "stop", [](gpu::RangeCounters& c) { c.session().stop(); }, Release())
        .def(
            "close", [](gpu::RangeCounters& c) { c.session().close(); }, Release())
        .def_property_readonly("passes", [](gpu::RangeCounters& c) { return c.session().passes(); })
        .def_property_readonly("steps_left_out", [](gpu::RangeCounters& c) { return c.session().steps_left_out(); })
        .def("take", &segments, "Segments since the last call: group, first_step, steps, dropped, image (sealed).");
    py::class_<gpu::SampledCounters>(m, "SampledCounters", "A device's counters over time; see pm_sampling.hpp.")
        .def(py::init<std::shared_ptr<gpu::CounterDevice>, std::vector<std::string>, std::uint64_t, bool, bool,
                      std::size_t>(),
             "device"_a, "metrics"_a, "interval"_a, "interval_in_cycles"_a = false, "keep_latest"_a = true,
             "hardware_buffer_bytes"_a = std::size_t{64} << 20, Release())
        .def(
            "start", [](gpu::SampledCounters& c) { c.sampler().start(); }, Release())
        .def(
            "stop", [](gpu::SampledCounters& c) { c.sampler().stop(); }, Release())
        .def(
            "close", [](gpu::SampledCounters& c) { c.sampler().close(); }, Release())
        .def(
            "take", &windows,
            "Windows since the last call: realtime_ns, monotonic_ns, overflows, t0_ns, t1_ns, values, image (sealed).");
}

#else

struct RangeCounters {};
struct SampledCounters {};

template <class Absent>
void refuse(py::module_& m, const char* name) {
    py::class_<Absent>(m, name).def(
        py::init([](const py::args&, const py::kwargs&) -> Absent { throw gpu::built_without_cupti(); }));
}

void init_sessions(py::module_& m) {
    refuse<RangeCounters>(m, "RangeCounters");
    refuse<SampledCounters>(m, "SampledCounters");
}

#endif

}  // namespace

void init_gpu_counters(py::module_& m) {
    init_host(m);
    init_device(m);
    init_sessions(m);
}

}  // namespace dnnsuite::bindings
