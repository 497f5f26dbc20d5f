// SPDX-License-Identifier: MIT
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <limits>
#include <optional>
#include <span>
#include <string>

#include "base/bootstrap.hpp"
#include "base/compare.hpp"
#include "base/error.hpp"
#include "base/stop_rules.hpp"
#include "base/summary.hpp"
#include "bindings/series.hpp"
#include "bindings/shown.hpp"
#include "host/contention.hpp"

namespace py = pybind11;
using py::literals::operator""_a;

namespace dnnsuite::bindings {

namespace {

const char* name_of(base::Status status) {
    switch (status) {
        case base::Status::kRunning: return "running";
        case base::Status::kConverged: return "converged";
        case base::Status::kNoisy: return "noisy";
        case base::Status::kTimeout: return "timeout";
    }
    return "";
}

const char* name_of(base::Verdict verdict) {
    switch (verdict) {
        case base::Verdict::kFaster: return "faster";
        case base::Verdict::kSlower: return "slower";
        case base::Verdict::kSame: return "same";
        case base::Verdict::kInconclusive: return "inconclusive";
    }
    return "";
}

void init_summary(py::module_& m) {
    using base::Summary, base::Trend;
    py::class_<Summary>(m, "Summary", "Centre and spread of a sample; NaN where there are too few values.")
        .def_readonly("count", &Summary::count, "Number of values.")
        .def_readonly("mean", &Summary::mean, "")
        .def_readonly("sd", &Summary::sd, "Standard deviation of the sample (n - 1).")
        .def_readonly("cv", &Summary::cv, "sd / |mean|.")
        .def_readonly("median", &Summary::median, "")
        .def_readonly("mad", &Summary::mad, "Median of |value - median|.")
        .def_readonly("p5", &Summary::p5, "5 % quantile.")
        .def_readonly("q1", &Summary::q1, "25 % quantile.")
        .def_readonly("q3", &Summary::q3, "75 % quantile.")
        .def_readonly("p95", &Summary::p95, "95 % quantile.")
        .def_readonly("mild", &Summary::mild, "Values 1.5 to 3 times (q3 - q1) outside the box; counted, not dropped.")
        .def_readonly("severe", &Summary::severe, "Values more than 3 times (q3 - q1) outside the box.")
        .def("__repr__", shown({"count", "mean", "sd", "median", "p5", "q1", "q3", "p95", "mild", "severe"}));
    m.def(
        "summarise", [](const Doubles& values) { return base::summarise(series(values, "values")); }, "values"_a,
        "Centre, spread and outliers of values [n].");
    m.def(
        "quantile", [](const Doubles& values, double q) { return base::quantile(series(values, "values"), q); },
        "values"_a, "q"_a, "The `q` quantile of values [n], between neighbours linearly; NaN without values.");
    py::class_<Trend>(m, "Trend", "Test of a trend in a series.")
        .def_readonly("slope_per_100", &Trend::slope_per_100, "Relative change per 100 values (0.01 is 1 %).")
        .def_readonly("p", &Trend::p, "Probability of as much order in a series without a trend.")
        .def_readonly("drifting", &Trend::drifting, "p < 0.01, and more than 0.5 % from end to end.")
        .def("__repr__", shown({"slope_per_100", "p", "drifting"}));
    m.def(
        "trend", [](const Doubles& values) { return base::trend(series(values, "values")); }, "values"_a,
        "The test of Mann and Kendall on values [n], over at most 40 means of neighbours, with Theil and Sen's slope.");
}

void init_compare(py::module_& m) {
    using base::Comparison, base::Bootstrap;
    py::class_<Comparison>(m, "Comparison", "Speed of a candidate over a baseline's, with a verdict.")
        .def_property_readonly(
            "verdict", [](const Comparison& self) { return name_of(self.verdict); },
            "faster, slower, same or inconclusive.")
        .def_readonly("ratio", &Comparison::ratio, "Speed of the candidate over the baseline's: above 1 it is faster.")
        .def_readonly("low", &Comparison::low, "")
        .def_readonly("high", &Comparison::high, "")
        .def_readonly("blocks", &Comparison::blocks, "Pairs, or values of the smaller side.")
        .def_readonly("more_blocks", &Comparison::more_blocks,
                      "Blocks that an inconclusive verdict still needs, roughly.")
        .def_readonly("p", &Comparison::p,
                      "Exact p by flipping the signs of all pairs; NaN from 10 pairs on, or unpaired.")
        .def_readonly("reason", &Comparison::reason, "Reason, as a sentence.")
        .def("__repr__", shown({"verdict", "ratio", "low", "high", "blocks", "reason"}));
    m.def(
        "compare",
        [](const Doubles& baseline_s, const Doubles& candidate_s, bool paired, double threshold, double confidence,
           bool independent) {
            const auto first = series(baseline_s, "baseline_s"), second = series(candidate_s, "candidate_s");
            return paired ? base::compare_paired(first, second, threshold, confidence)
                          : base::compare_unpaired(first, second, threshold, confidence, independent);
        },
        "baseline_s"_a, "candidate_s"_a, py::kw_only(), "paired"_a = true, "threshold"_a = 0.01, "confidence"_a = 0.95,
        "independent"_a = false,
        "Compare seconds of the same work [n]: block i of one with block i of the other (see `abba`), by log ratios\n"
        "and Student's t; with paired=False, samples of any length [n], [m] by Welch's t.\n\n"
        "Without pairs each sample is a series, as steps of one run are: its correlation widens the interval, and\n"
        "fewer than 20 values are too short. independent=True: means of separate runs, however few.\n\n"
        "Faster or slower where the interval excludes 1 and the effect exceeds `threshold`, same where it lies within\n"
        "the threshold, else inconclusive. Raises InvalidArgument for lengths that differ or a threshold <= 0.");
    py::class_<Bootstrap>(m, "Bootstrap", "An estimate with its interval from resampling.")
        .def_readonly("value", &Bootstrap::value, "")
        .def_readonly("low", &Bootstrap::low, "NaN where there was nothing to resample.")
        .def_readonly("high", &Bootstrap::high, "NaN where there was nothing to resample.")
        .def_readonly("runs", &Bootstrap::runs, "Runs of the side that has fewer.")
        .def_readonly("method", &Bootstrap::method,
                      "BCa; percentile where its corrections cannot be had; t for fewer than 20 runs.")
        .def("__repr__", shown({"value", "low", "high", "runs", "method"}));
    m.def("bootstrap_mean", &base::bootstrap_mean, "runs"_a, "resamples"_a = 2000, "confidence"_a = 0.95, "seed"_a = 0,
          "The mean over runs of the mean over their blocks, `runs[r][k]`, by the hierarchical bootstrap (BCa).\n\n"
          "Runs are drawn with replacement, then blocks within each. The same seed gives the same bits. Of fewer than\n"
          "20 runs, where any bootstrap is too narrow, the interval is that of Student's t.\n\n"
          "Raises InvalidArgument for a run without blocks, or fewer than 100 resamples.");
    m.def("bootstrap_ratio", &base::bootstrap_ratio, "numerator"_a, "denominator"_a, "resamples"_a = 2000,
          "confidence"_a = 0.95, "seed"_a = 0,
          "The ratio of two means over runs, both sides resampled; as `bootstrap_mean`.");
}

template <class Rule>
using RuleClass = py::class_<Rule, base::StopRule>;

void init_stop_rules(py::module_& m) {
    using base::StopRule;
    constexpr double kForever = std::numeric_limits<double>::infinity();
    py::class_<StopRule>(m, "StopRule", "Decides after each sample whether enough were taken.")
        .def(
            "add",
            [](StopRule& self, double seconds, std::optional<double> elapsed_s) {
                return name_of(self.add(seconds, elapsed_s.value_or(self.total_s() + seconds)));
            },
            "seconds"_a, "elapsed_s"_a = py::none(),
            "Take in a sample; returns the status. The budget is for `elapsed_s`, or the sum of the samples.\n\n"
            "Raises InvalidArgument for a time that is not positive and finite, Error when it has ended.")
        .def_property_readonly(
            "status", [](const StopRule& self) { return name_of(self.status()); },
            "running, converged, noisy (it ended, but one number does not summarise the samples) or timeout.")
        .def_property_readonly("reason", &StopRule::reason, "Reason for the end, as a sentence.")
        .def_property_readonly(
            "seconds", [](const StopRule& self) { return py::array_t<double>(py::cast(self.seconds())); },
            "The samples [n].")
        .def("__repr__", shown({"status", "seconds", "reason"}));
    RuleClass<base::Fixed>(m, "Fixed", "A fixed number of samples; converged when the mean is known to `target`.")
        .def(py::init<std::int64_t, double, double>(), "samples"_a, "target"_a = 0.01, "budget_s"_a = kForever);
    RuleClass<base::StdRel>(m, "StdRel",
                            "nvbench's stdrel: until the relative standard deviation is below `max_noise`, or settled.")
        .def(py::init<double, std::int64_t, double, double>(), "max_noise"_a = 0.005, "min_samples"_a = 40,
             "min_time_s"_a = 0.5, "budget_s"_a = 15.0);
    RuleClass<base::Entropy>(m, "Entropy", "nvbench's entropy: until the samples' distribution changes no more.")
        .def(py::init<double, double, double, double>(), "max_angle_deg"_a = 0.048, "min_r2"_a = 0.36,
             "resolution"_a = 0.005, "budget_s"_a = 15.0);
    RuleClass<base::Precision>(m, "Precision",
                               "Samples until the mean is known to `target` (95 %), looked at each time their number\n"
                               "has doubled; noisy when neither of two doublings narrows the interval by 10 %.")
        .def(py::init<double, std::int64_t, double>(), "target"_a = 0.01, "first"_a = 80, "budget_s"_a = kForever);
}

void init_contention(py::module_& m) {
    using host::Disturbances;
    m.def("addition_ns", &host::addition_ns, "additions"_a = 100'000, py::call_guard<py::gil_scoped_release>(),
          "Nanoseconds of one addition in a dependent chain: a cycle of the core, if this thread has it to itself.");
    py::class_<Disturbances>(m, "Disturbances", "Counters of what disturbs this process; they only grow.")
        .def_readonly("t_ns", &Disturbances::t_ns, "Time of reading, on `now_ns`.")
        .def_readonly("involuntary_switches", &Disturbances::involuntary_switches, "Threads taken off their core.")
        .def_readonly("steal_s", &Disturbances::steal_s, "CPU time the hypervisor gave to others; NaN if unknown.")
        .def_readonly("pressure_s", &Disturbances::pressure_s, "Time in which some task waited for a CPU; or NaN.")
        .def("__repr__", shown({"t_ns", "involuntary_switches", "steal_s", "pressure_s"}));
    m.def("read_disturbances", &host::read_disturbances, "Read the counters of the kernel.");
}

}  // namespace

void init_decisions(py::module_& m) {
    init_summary(m);
    init_compare(m);
    init_stop_rules(m);
    init_contention(m);
}

}  // namespace dnnsuite::bindings
