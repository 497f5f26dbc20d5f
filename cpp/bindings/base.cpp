// SPDX-License-Identifier: MIT
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <span>
#include <string>

#include "base/error.hpp"
#include "base/statistics.hpp"
#include "base/warmup.hpp"
#include "bindings/series.hpp"
#include "bindings/shown.hpp"

namespace py = pybind11;
using py::literals::operator""_a;

namespace dnnsuite::bindings {

namespace {

void init_running(py::module_& m) {
    py::class_<base::RunningStatistics>(m, "RunningStatistics",
                                        "Count, mean, variance, minimum and maximum of values seen one at a time.")
        .def(py::init<>())
        .def("add", &base::RunningStatistics::add, "value"_a, "Take one value in.")
        .def("merge", &base::RunningStatistics::merge, "other"_a, "Add every value of `other`.")
        .def_property_readonly("count", &base::RunningStatistics::count, "Number of values.")
        .def_property_readonly("mean", &base::RunningStatistics::mean, "NaN without values.")
        .def_property_readonly("variance", &base::RunningStatistics::variance,
                               "Standard deviation of the sample (n - 1); NaN below two values.")
        .def_property_readonly("min", &base::RunningStatistics::min, "NaN without values.")
        .def_property_readonly("max", &base::RunningStatistics::max, "NaN without values.")
        .def("__repr__", shown({"count", "mean", "variance", "min", "max"}));
}

void init_interval(py::module_& m) {
    py::class_<base::Interval>(m, "Interval", "An estimate and the interval it is known to.")
        .def_readonly("mean", &base::Interval::mean, "The estimate, over all values.")
        .def_readonly("low", &base::Interval::low, "NaN where fewer than two batches were to be had.")
        .def_readonly("high", &base::Interval::high, "NaN where fewer than two batches were to be had.")
        .def_readonly("half_width", &base::Interval::half_width, "(high - low) / 2.")
        .def_readonly("batches", &base::Interval::batches, "Batches used, never more than there are values.")
        .def_readonly("lag1", &base::Interval::lag1,
                      "Correlation of neighbouring batches, NaN below three; above 0.2 the series is too short.")
        .def_readonly("why", &base::Interval::why,
                      "Reason why values are too few to rely on it; empty where they are enough.")
        .def_property_readonly(
            "enough", [](const base::Interval& self) { return self.why.empty(); },
            "True where the interval may be relied on: neither too short nor too few.")
        .def_readonly("count", &base::Interval::count, "Values that it is of.")
        .def_property_readonly("unseen", &base::Interval::unseen,
                               "Rare events that so few values cannot have seen, as a sentence; empty from 300 on.")
        .def("__repr__", [](const base::Interval& self) {
            return py::str("Interval(mean={:.6g}, low={:.6g}, high={:.6g}, batches={}, lag1={:.3g})")
                .format(self.mean, self.low, self.high, self.batches, self.lag1);
        });
    m.def("student_t", &base::student_t, "confidence"_a, "degrees"_a,
          "The t for which Student's t lies in [-t, t] with probability `confidence`.\n\n"
          "Raises InvalidArgument unless 0 < confidence < 1 and degrees > 0.");
    m.def(
        "batch_means",
        [](const Doubles& values, int batches, double confidence, bool independent, bool may_be_negative) {
            return base::batch_means(series(values, "values"), batches, confidence, independent, may_be_negative);
        },
        "values"_a, "batches"_a = 10, "confidence"_a = 0.95, py::kw_only(), "independent"_a = false,
        "may_be_negative"_a = false,
        "The mean of a series [n] whose values may be correlated, with its interval.\n\n"
        "From 20 values on the error is that of the slowest waves in them, corrected for the correlation of "
        "neighbours;\n"
        "fewer are averaged in `batches` pieces. independent=True: means of separate runs, by\n"
        "Student's t. `why` says where values are too few to rely on the interval: always for a series below 50, for\n"
        "runs below 6. An empty series gives NaN. Values that are all positive, as times are, have an interval on a\n"
        "logarithmic scale; may_be_negative=True: as differences and logarithms may, none.\n\n"
        "Raises InvalidArgument unless batches >= 2 and 0 < confidence < 1.");
    m.def(
        "rate",
        [](const Doubles& items, const Doubles& seconds, int batches, double confidence) {
            return base::rate(series(items, "items"), series(seconds, "seconds"), batches, confidence);
        },
        "items"_a, "seconds"_a, "batches"_a = 10, "confidence"_a = 0.95,
        "Items per second of a run: all items [n] / all seconds [n].\n\n"
        "The interval is that of the time per item by batch means, inverted, and so not symmetric.\n\n"
        "Raises InvalidArgument for lengths that differ, and as `batch_means`.");
}

void init_warmup(py::module_& m) {
    py::class_<base::Warmup>(m, "Warmup", "The end of warm-up in a series of times.")
        .def_readonly("truncated", &base::Warmup::truncated, "Values to drop from the front.")
        .def_readonly("steady", &base::Warmup::steady, "True if one number may summarise the values that are left.")
        .def_readonly("reason", &base::Warmup::reason, "Reason, as a sentence.")
        .def_readonly("drift_per_100", &base::Warmup::drift_per_100,
                      "Relative change per 100 values in what is left (0.01 is 1 %).")
        .def("__repr__", [](const base::Warmup& self) {
            return py::str("Warmup(truncated={}, steady={}, reason={!r}, drift_per_100={:.3g})")
                .format(self.truncated, self.steady, self.reason, self.drift_per_100);
        });
    m.def(
        "mser5", [](const Doubles& values) { return base::mser5(series(values, "values")); }, "values"_a,
        "Find the end of warm-up in a series of times [n] by MSER-5 (White 1997).\n\n"
        "Not steady when the truncation reaches the middle of the series, when what is left disagrees with the\n"
        "last half by more than its noise and 0.5 %, below 20 values, or when a value is not finite.");
}

}  // namespace

void init_base(py::module_& m) {
    init_running(m);
    init_interval(m);
    init_warmup(m);
}

}  // namespace dnnsuite::bindings
