// SPDX-License-Identifier: MIT
#pragma once

#include <pybind11/numpy.h>

#include <cstddef>
#include <span>
#include <string>

#include "base/error.hpp"

namespace dnnsuite::bindings {

using Doubles = pybind11::array_t<double, pybind11::array::c_style | pybind11::array::forcecast>;

/// The values of a series; accepts anything numpy can turn into one, without a copy where it is one already.
inline std::span<const double> series(const Doubles& values, const char* name) {
    if (values.ndim() != 1)
        throw InvalidArgument(std::string(name) + " must have one dimension, not " + std::to_string(values.ndim()));
    return {values.data(), static_cast<std::size_t>(values.size())};
}

}  // namespace dnnsuite::bindings
