// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dnnsuite::host {

/// The numbers of the kernel's list format, "0-3,8": sorted, each once. Empty text is the empty list.
/// Throws InvalidArgument, naming the text, for anything else; numbers are below 65536.
std::vector<int> parse_cpu_list(std::string_view text);

/// The shortest list format of the numbers, "0-3,8". They may come in any order and more than once.
/// Throws InvalidArgument for a negative one.
std::string format_cpu_list(std::vector<int> numbers);

}  // namespace dnnsuite::host
