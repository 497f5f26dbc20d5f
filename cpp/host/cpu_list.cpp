// SPDX-License-Identifier: MIT
#include "host/cpu_list.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "host/files.hpp"

namespace dnnsuite::host {

namespace {

constexpr int most_cpus = 65536;  // more CPUs than any kernel is built for; keeps "0-4000000000" out of memory

int number_of(std::string_view piece, std::string_view text) {
    const auto value = parse_integer(piece);
    if (!value || *value < 0 || *value >= most_cpus || piece.front() == '-')
        throw InvalidArgument("'" + std::string(text) + "' is no list of CPUs like 0-3,8");
    return static_cast<int>(*value);
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
    std::vector<int> numbers;
    if (text.empty()) return numbers;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string_view piece = text.substr(begin, end - begin);
        const std::size_t dash = std::min(piece.find('-'), piece.size());
        const int first = number_of(piece.substr(0, dash), text);
        const int last = dash < piece.size() ? number_of(piece.substr(dash + 1), text) : first;
        if (last < first) throw InvalidArgument("'" + std::string(text) + "' has a range that runs backwards");
        for (int i = first; i <= last; ++i) numbers.push_back(i);
        begin = end + 1;
    }
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    return numbers;
}

std::string format_cpu_list(std::vector<int> numbers) {
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    if (!numbers.empty() && numbers.front() < 0)
        throw InvalidArgument("CPU " + std::to_string(numbers.front()) + " is negative");
    std::string text;
    for (std::size_t begin = 0, end = 0; begin < numbers.size(); begin = end) {
        end = begin + 1;
        while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
        if (!text.empty()) text += ',';
        text += std::to_string(numbers[begin]);
        if (end - begin > 1) text.append("-").append(std::to_string(numbers[end - 1]));
    }
    return text;
}

}  // namespace dnnsuite::host
