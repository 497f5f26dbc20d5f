// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

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

/// Something this machine does not have was asked for by name. Becomes `dnnsuite.errors.Unavailable`.
class Unavailable : public Error {
  public:
    explicit Unavailable(std::string missing, std::string looked = "", std::string help = "")
        : Error(missing), what_is_missing(std::move(missing)), looked_in(std::move(looked)), remedy(std::move(help)) {}

    std::string what_is_missing;
    std::string looked_in;
    std::string remedy;
};

}  // namespace dnnsuite
