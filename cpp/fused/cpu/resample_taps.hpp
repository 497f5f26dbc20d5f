// SPDX-License-Identifier: MIT
// Pixels that a pixel of a resampled, padded or averaged line is made of, and their weights. A resampled image is that
// of its rows and that of its columns, and its gradient the same with the tables transposed.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fused/checks.hpp"

namespace dnnsuite::fused {

/// Of pixel i of the result: pixels sources[k] with weights[k], k in [starts[i], starts[i + 1]).
struct LineTaps {
    std::vector<int64_t> starts{0}, sources;
    std::vector<double> weights;
    std::vector<int64_t> runs;  // pixels from i on that are those of x, side by side; of fewer than two: 1

    void take(int64_t source, double weight) {
        sources.push_back(source);
        weights.push_back(weight);
    }
    void close() { starts.push_back(static_cast<int64_t>(sources.size())); }
};

/// Finds the runs of a table, from the end.
inline void find_runs(LineTaps& taps) {
    const auto is_copy = [&](size_t i) {
        return taps.starts[i + 1] == taps.starts[i] + 1 && taps.weights[static_cast<size_t>(taps.starts[i])] == 1.0;
    };
    const size_t outputs = taps.starts.size() - 1;
    taps.runs.assign(outputs, 1);
    for (size_t i = outputs - 1; i-- > 0;) {
        const auto k = static_cast<size_t>(taps.starts[i]);
        if (is_copy(i) && is_copy(i + 1) && taps.sources[k + 1] == taps.sources[k] + 1)
            taps.runs[i] = taps.runs[i + 1] + 1;
    }
}

/// The same of a line of `inputs` pixels, seen from those: where each one goes.
inline LineTaps transposed(const LineTaps& taps, int64_t inputs) {
    LineTaps back;
    back.starts.assign(static_cast<size_t>(inputs) + 1, 0);
    for (const int64_t source : taps.sources) ++back.starts[static_cast<size_t>(source) + 1];
    for (size_t i = 0; i < static_cast<size_t>(inputs); ++i) back.starts[i + 1] += back.starts[i];
    std::vector<int64_t> next(back.starts.begin(), back.starts.end() - 1);
    back.sources.resize(taps.sources.size());
    back.weights.resize(taps.sources.size());
    for (size_t i = 0; i + 1 < taps.starts.size(); ++i) {
        for (auto k = static_cast<size_t>(taps.starts[i]); k < static_cast<size_t>(taps.starts[i + 1]); ++k) {
            const auto place = static_cast<size_t>(next[static_cast<size_t>(taps.sources[k])]++);
            back.sources[place] = static_cast<int64_t>(i);
            back.weights[place] = taps.weights[k];
        }
    }
    return back;
}

enum class Resample {
    kNearest,
    kNearestExact,
    kLinear,
    kLinearCorners,
    kCubic,
    kCubicCorners,
    kAverage,
    kZero,
    kCircular,
    kReplicate,
    kReflect
};

constexpr int kKinds = 11;

inline Resample resample_kind(const std::string& name) {
    const char* const names[] = {"nearest", "nearest-exact", "linear",   "linear corners", "cubic",  "cubic corners",
                                 "average", "zero",          "circular", "replicate",      "reflect"};
    int kind = 0;
    while (kind < kKinds && name != names[kind]) ++kind;
    STD_TORCH_CHECK(kind < kKinds, "resample: there is no kind '", name, "'");
    return static_cast<Resample>(kind);
}

/// A line before and after. `step`: pixels of x from one of the result to the next, where a factor gives them;
/// `before`: pixels of padding in front.
struct Resampling {
    Resample kind;
    int64_t inputs, outputs;
    double step;
    int64_t before;
};

/// Weights in T, the type that torch computes them in: float for float32.
template <class T>
void take_linear(const Resampling& line, T place, LineTaps& taps) {
    const T at = std::max(place, T(0));
    const int64_t first = std::min(static_cast<int64_t>(at), line.inputs - 1);
    const T share = first + 1 < line.inputs ? at - static_cast<T>(first) : T(0);
    taps.take(first, T(1) - share);
    if (share != T(0)) taps.take(first + 1, share);
}

/// Keys' cubic convolution with a = -0.75, as torch has it.
template <class T>
void take_cubic(const Resampling& line, T place, LineTaps& taps) {
    const T whole = std::floor(place), t = place - whole, a = T(-0.75);
    const auto near = [a](T x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
    const auto far = [a](T x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
    const T weights[4] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
    for (int64_t i = 0; i < 4; ++i) {
        const int64_t source = static_cast<int64_t>(whole) - 1 + i;
        taps.take(std::clamp(source, int64_t{0}, line.inputs - 1), weights[i]);
    }
}

/// As an adaptive pool: all pixels that the i-th part of the line touches.
inline void take_average(const Resampling& line, int64_t i, LineTaps& taps) {
    const int64_t begin = i * line.inputs / line.outputs;
    const int64_t end = ((i + 1) * line.inputs + line.outputs - 1) / line.outputs;
    for (int64_t source = begin; source < end; ++source) taps.take(source, 1.0 / static_cast<double>(end - begin));
}

/// The pixel that padding repeats, or the image's own.
inline int64_t padded_source(const Resampling& line, int64_t i) {
    const int64_t place = i - line.before, last = line.inputs - 1;
    if (line.kind == Resample::kCircular) return (place % line.inputs + line.inputs) % line.inputs;
    if (line.kind == Resample::kReplicate) return std::clamp(place, int64_t{0}, last);
    return place < 0 ? -place : place > last ? 2 * last - place : place;
}

/// Adds what pixel i is made of.
template <class T>
void take_pixel(const Resampling& line, int64_t i, LineTaps& taps) {
    const auto step = static_cast<T>(line.step), place = static_cast<T>(i);
    const T centre = step * (place + T(0.5)) - T(0.5), corner = step * place;
    // torch finds the nearest pixel in float32 whatever T is.
    const auto nearest = [&](float beyond) {
        const float found = static_cast<float>(line.step) * (static_cast<float>(i) + beyond);
        taps.take(std::min(static_cast<int64_t>(found), line.inputs - 1), 1);
    };
    switch (line.kind) {
        case Resample::kNearest: return nearest(0.0f);
        case Resample::kNearestExact: return nearest(0.5f);
        case Resample::kLinear: return take_linear<T>(line, centre, taps);
        case Resample::kLinearCorners: return take_linear<T>(line, corner, taps);
        case Resample::kCubic: return take_cubic<T>(line, centre, taps);
        case Resample::kCubicCorners: return take_cubic<T>(line, corner, taps);
        case Resample::kAverage: return take_average(line, i, taps);
        case Resample::kZero:
            if (i >= line.before && i < line.before + line.inputs) taps.take(i - line.before, 1);
            return;
        default: return taps.take(padded_source(line, i), 1);
    }
}

template <class T>
LineTaps taps_of(const Resampling& line) {
    LineTaps taps;
    for (int64_t i = 0; i < line.outputs; ++i, taps.close()) take_pixel<T>(line, i, taps);
    return taps;
}

}  // namespace dnnsuite::fused
