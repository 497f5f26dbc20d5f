// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>

namespace dnnsuite {

/// Base of everything this library throws. Becomes `dnnsuite.errors.Error` in Python.
class Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// An argument was refused; the message names the value and what is accepted.
/// Becomes `dnnsuite.errors.InvalidArgument`, which is a ValueError as well.
class InvalidArgument : public Error {
  public:
    using Error::Error;
};

}  // namespace dnnsuite
