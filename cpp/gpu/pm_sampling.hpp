// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpu/counter_host.hpp"

namespace dnnsuite::gpu {

struct PmSamplingApi;

struct SamplingOptions {
    std::size_t device = 0;
    std::uint64_t interval = 1'000'000;  ///< ns, or cycles of the system clock
    bool interval_in_cycles = false;     ///< Turing and GA100 have no trigger by time
    bool keep_latest = true;             ///< Turing keeps the oldest when its buffer is full
    std::size_t hardware_buffer_bytes = std::size_t{64} << 20;
    std::uint32_t samples_per_image = 1024;
    std::int64_t decode_every_ns = 10'000'000;
};

/// Samples of one window.
struct SampledWindow {
    std::int64_t realtime_ns = 0, monotonic_ns = 0;  ///< this machine's clocks as sampling began
    std::size_t overflows = 0;                       ///< times that the GPU's buffer was found to have run over
    CounterValues samples;                           ///< without the first, which began before the window
    std::vector<std::uint8_t> image;                 ///< the last that held samples, as CUPTI filled it
};

/// Counters of a whole device as a time series: of all processes on it. A thread fetches and decodes.
class PmSampler {
  public:
    /// Throws Unavailable when the GPU or another tool forbids it, InvalidArgument when the metrics need more than one
    /// pass; nothing is held after a throw. `api` and `host` must outlive the sampler.
    PmSampler(const PmSamplingApi& api, const CounterHost& host, std::vector<std::string> metrics,
              const SamplingOptions& options);
    ~PmSampler();
    PmSampler(const PmSampler&) = delete;
    PmSampler& operator=(const PmSampler&) = delete;

    void start();
    /// Waits for the thread and fetches the rest. Throws what the thread ran into.
    void stop();
    /// Ends sampling; again does nothing. In a child of fork it only forgets.
    void close() noexcept;
    /// The windows since the last call.
    std::vector<SampledWindow> take();

  private:
    void configure();
    void fetch_regularly();
    void fetch();
    bool fetch_one_image();
    void join() noexcept;

    const PmSamplingApi& api_;
    const CounterHost& host_;
    const std::vector<std::string> metrics_;
    const SamplingOptions options_;
    const pid_t owner_;
    std::vector<std::uint8_t> config_;
    std::vector<std::uint8_t> image_;
    void* object_ = nullptr;
    bool running_ = false;
    bool discard_first_ = false;

    std::thread thread_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool stopping_ = false;
    std::exception_ptr failure_;
    SampledWindow window_;  ///< the thread's while it runs
    std::vector<SampledWindow> done_;
};

}  // namespace dnnsuite::gpu
