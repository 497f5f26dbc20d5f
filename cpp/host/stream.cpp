// SPDX-License-Identifier: MIT
#include "host/stream.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <ctime>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "host/clock.hpp"

namespace dnnsuite::host {

namespace {

constexpr std::int64_t line_doubles = 8;  // of 64 bytes
constexpr std::int64_t element_bytes = 3 * sizeof(double);
constexpr double scale = 3.0;

using Triad = void (*)(double*, const double*, const double*, std::int64_t) noexcept;

// Explicit clones instead of target_clones, whose resolvers run before a sanitizer is ready.
#define DNNSUITE_TRIAD(name, attribute)                                                               \
    attribute void name(double* __restrict a, const double* __restrict b, const double* __restrict c, \
                        std::int64_t n) noexcept {                                                    \
        for (std::int64_t i = 0; i < n; ++i) a[i] = b[i] + scale * c[i];                              \
    }
DNNSUITE_TRIAD(triad_generic, )
#if defined(__x86_64__)
DNNSUITE_TRIAD(triad_avx2, __attribute__((target("avx2,fma"))))
DNNSUITE_TRIAD(triad_avx512, __attribute__((target("avx512f,prefer-vector-width=512"))))
#endif
#undef DNNSUITE_TRIAD

struct Choice {
    Triad triad;
    const char* name;
};

Choice widest() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return {triad_avx512, "avx512"};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {triad_avx2, "avx2"};
#elif defined(__aarch64__)
    return {triad_generic, "neon"};
#endif
    return {triad_generic, "generic"};
}

bool bind(int cpu) {
    if (cpu < 0) return true;
    const int size = std::max(cpu + 1, CPU_SETSIZE);
    cpu_set_t* const set = CPU_ALLOC(static_cast<std::size_t>(size));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    CPU_ZERO_S(bytes, set);
    CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
    const bool bound = pthread_setaffinity_np(pthread_self(), bytes, set) == 0;
    CPU_FREE(set);
    return bound;
}

/// Arrays of one thread, each at the start of a cache line and not a power of two apart.
class Arrays {
  public:
    explicit Arrays(std::int64_t n)
        : stride_(n + line_doubles * 5), memory_(static_cast<double*>(::operator new(bytes(), std::align_val_t{64}))) {
        std::fill_n(memory_.get(), 3 * stride_, 1.0);  // the first touch: pages come from this CPU's node
    }
    double* at(int which) const noexcept { return memory_.get() + which * stride_; }

  private:
    struct Delete {
        void operator()(double* memory) const noexcept { ::operator delete(memory, std::align_val_t{64}); }
    };
    std::size_t bytes() const noexcept { return static_cast<std::size_t>(3 * stride_) * sizeof(double); }
    std::int64_t stride_;
    std::unique_ptr<double[], Delete> memory_;
};

struct Shared {
    Shared(std::size_t threads, int repeats)
        : gate(static_cast<std::ptrdiff_t>(threads)), rates(static_cast<std::size_t>(repeats)) {}
    std::barrier<> gate;
    std::atomic<bool> failed = false;
    std::vector<std::atomic<double>> rates;  // bytes/s of each repeat, summed over threads
};

void add(std::atomic<double>& sum, double value) noexcept {
    double seen = sum.load();
    while (!sum.compare_exchange_weak(seen, seen + value)) continue;
}

void work(Shared& shared, Triad triad, int cpu, std::int64_t n, std::int64_t least_ns) noexcept {
    std::unique_ptr<Arrays> arrays;
    try {
        if (bind(cpu)) arrays = std::make_unique<Arrays>(n);
    } catch (const std::bad_alloc&) {  // told by `failed`, as a CPU that is refused
    }
    if (!arrays) shared.failed = true;
    shared.gate.arrive_and_wait();
    if (shared.failed) return;
    const std::int64_t burst = std::max<std::int64_t>(1, 65536 / n);  // the clock must not be what is measured
    for (std::atomic<double>& rate : shared.rates) {
        shared.gate.arrive_and_wait();
        const std::int64_t begin = now_ns();
        std::int64_t passes = 0, elapsed = 0;
        do {
            for (std::int64_t i = 0; i < burst; ++i) {
                triad(arrays->at(0), arrays->at(1), arrays->at(2), n);
                asm volatile("" : : "r"(arrays->at(0)) : "memory");  // every pass is needed
            }
            passes += burst;
            elapsed = now_ns() - begin;
        } while (elapsed < least_ns);
        add(rate, 1e9 * static_cast<double>(passes * n * element_bytes) /
                      static_cast<double>(std::max<std::int64_t>(elapsed, 1)));
    }
}

void check(const std::vector<int>& cpus, std::int64_t bytes, int repeats) {
    if (cpus.empty()) throw InvalidArgument("the triad needs at least one CPU");
    if (bytes < line_doubles * element_bytes)
        throw InvalidArgument("the triad needs at least 192 bytes a thread, got " + std::to_string(bytes));
    if (repeats < 1) throw InvalidArgument("the triad needs at least one repeat, got " + std::to_string(repeats));
}

}  // namespace

Bandwidth stream_triad(const std::vector<int>& cpus, std::int64_t bytes_per_thread, int repeats,
                       std::int64_t least_ns) {
    check(cpus, bytes_per_thread, repeats);
    const std::int64_t n = bytes_per_thread / element_bytes / line_doubles * line_doubles;
    const Choice choice = widest();
    Shared shared(cpus.size(), repeats);
    {
        std::vector<std::jthread> threads;
        for (const int cpu : cpus)
            threads.emplace_back(
                [&shared, &choice, cpu, n, least_ns] { work(shared, choice.triad, cpu, n, least_ns); });
    }
    if (shared.failed)
        throw Error("the triad could not bind its threads to their CPUs, or had no memory for " +
                    std::to_string(bytes_per_thread) + " bytes each");
    std::vector<double> rates(shared.rates.begin(), shared.rates.end());
    std::sort(rates.begin(), rates.end());
    return {rates.back(), rates[rates.size() / 2], n * element_bytes, choice.name};
}

Spin spin(std::int64_t iterations) noexcept {
    const auto cpu_ns = [] {
        timespec now{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    };
    const std::int64_t cpu = cpu_ns(), wall = now_ns();
    double x = 1.0;
    for (std::int64_t i = 0; i < iterations; ++i) {
        x = x * 0.999999 + 1e-6;
        asm volatile("" : "+m"(x));
    }
    const std::int64_t wall_end = now_ns();
    return {wall_end - wall, cpu_ns() - cpu};
}

}  // namespace dnnsuite::host
