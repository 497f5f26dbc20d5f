// SPDX-License-Identifier: MIT
#include "host/contention.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "host/clock.hpp"

namespace dnnsuite::host {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double steal_s() {
    std::ifstream file("/proc/stat");
    std::string cpu;
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    if (!(file >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal)) return kNaN;
    return steal / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double pressure_s() {
    std::ifstream file("/proc/pressure/cpu");
    std::string word;
    while (file >> word)
        if (word.starts_with("total=")) return std::stod(word.substr(6)) * 1e-6;  // of `some`, which is the first line
    return kNaN;
}

}  // namespace

double addition_ns(std::int64_t additions) {
    if (additions < 1) throw InvalidArgument("additions=" + std::to_string(additions) + ": must be at least 1");
    constexpr std::int64_t kUnrolled = 16;  // or the loop's own instructions would be measured with it
    const std::int64_t rounds = (additions + kUnrolled - 1) / kUnrolled;
    std::uint64_t value = 1, step = 3;
    asm volatile("" : "+r"(step));  // a register: some processors rename additions of a constant away, at no cycle each
    const std::int64_t begin = now_ns();
    for (std::int64_t i = 0; i < rounds; ++i)
        for (std::int64_t k = 0; k < kUnrolled; ++k) {
            value += step;
            asm volatile("" : "+r"(value));  // the compiler must not fold the chain
        }
    return static_cast<double>(now_ns() - begin) / static_cast<double>(rounds * kUnrolled);
}

Disturbances read_disturbances() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return {now_ns(), usage.ru_nivcsw, steal_s(), pressure_s()};
}

}  // namespace dnnsuite::host
