// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/error.hpp"

namespace dnnsuite::host {

/// The kernel refused something about a control group. `kind` names the class of `dnnsuite.pin.errors` that it
/// becomes in Python; what() has all of it in one line.
class CgroupError : public Error {
  public:
    CgroupError(std::string kind, std::string operation, std::string path, std::string value, int number,
                std::string hint);

    std::string kind, operation, path, value;
    int number;  ///< errno, or 0
    std::string hint;
};

/// Throws the CgroupError that `number`, the errno of `operation` on `path`, means, with the way out.
[[noreturn]] void refuse(const std::string& operation, const std::string& path, const std::string& value, int number);

}  // namespace dnnsuite::host
