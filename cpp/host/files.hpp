// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dnnsuite::host {

/// The whole text of a small file of /proc or /sys without trailing newlines; nothing when it cannot be read.
std::optional<std::string> read_text(const std::string& path);

/// Writes `value` with one write(2), as the kernel's control files want it. Returns 0 or the errno.
int write_text(const std::string& path, std::string_view value) noexcept;

/// Names in a directory, sorted; empty when it cannot be read. `directories` leaves out everything else.
std::vector<std::string> list_names(const std::string& path, bool directories = false);

/// Pieces of `text` between `separator`; empty pieces are left out.
std::vector<std::string> split(std::string_view text, char separator);

/// The number after `key` and a space at the start of a line, as in memory.events; nothing when it is not there.
std::optional<long long> value_of(std::string_view text, std::string_view key);

/// The integer that `text` is; nothing for anything else.
std::optional<long long> parse_integer(std::string_view text);

}  // namespace dnnsuite::host
