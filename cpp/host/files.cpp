// SPDX-License-Identifier: MIT
#include "host/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace dnnsuite::host {

std::optional<std::string> read_text(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return std::nullopt;
    std::string text;
    char part[4096];
    ssize_t count = 0;
    while ((count = ::read(file, part, sizeof part)) > 0 || (count < 0 && errno == EINTR))
        if (count > 0) text.append(part, static_cast<std::size_t>(count));
    ::close(file);
    if (count < 0) return std::nullopt;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

int write_text(const std::string& path, std::string_view value) noexcept {
    const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return errno;
    ssize_t count = 0;
    do {
        count = ::write(file, value.data(), value.size());
    } while (count < 0 && errno == EINTR);
    const int error = count < 0 ? errno : 0;
    ::close(file);
    return error;
}

std::vector<std::string> list_names(const std::string& path, bool directories) {
    std::vector<std::string> names;
    DIR* folder = ::opendir(path.c_str());
    if (folder == nullptr) return names;
    while (const dirent* entry = ::readdir(folder)) {
        const std::string name = entry->d_name;
        if (name != "." && name != ".." && (!directories || entry->d_type == DT_DIR)) names.push_back(name);
    }
    ::closedir(folder);
    std::sort(names.begin(), names.end());
    return names;
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> pieces;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        if (end > begin) pieces.emplace_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return pieces;
}

std::optional<long long> value_of(std::string_view text, std::string_view key) {
    for (const std::string& line : split(text, '\n'))
        if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ')
            return parse_integer(std::string_view(line).substr(key.size() + 1));
    return std::nullopt;
}

std::optional<long long> parse_integer(std::string_view text) {
    long long value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace dnnsuite::host
