// SPDX-License-Identifier: MIT
#include "gpu/counter_sessions.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <utility>

#include "gpu/counter_api.hpp"

namespace dnnsuite::gpu {

RangeCounters::RangeCounters(std::shared_ptr<CounterDevice> device, std::vector<std::vector<std::string>> groups,
                             bool kernels, std::size_t max_ranges)
    : device_(std::move(device)) {
    const std::unique_ptr<CounterHost> host =
        open_counter_host(device_->chip(), Collection::kRanges, device_->availability(Collection::kRanges));
    session_ = std::make_unique<RangeSession>(range_api(), *host, device_->context(), std::move(groups),
                                              kernels ? RangeMode::kKernels : RangeMode::kSteps, max_ranges);
}

RangeCounters::~RangeCounters() = default;

SampledCounters::SampledCounters(std::shared_ptr<CounterDevice> device, std::vector<std::string> metrics,
                                 std::uint64_t interval, bool interval_in_cycles, bool keep_latest,
                                 std::size_t hardware_buffer_bytes)
    : device_(std::move(device)),
      host_(open_counter_host(device_->chip(), Collection::kSampling, device_->availability(Collection::kSampling))) {
    SamplingOptions options;
    options.device = static_cast<std::size_t>(device_->ordinal());
    options.interval = interval;
    options.interval_in_cycles = interval_in_cycles;
    options.keep_latest = keep_latest;
    options.hardware_buffer_bytes = hardware_buffer_bytes;
    sampler_ = std::make_unique<PmSampler>(pm_sampling_api(), *host_, std::move(metrics), options);
}

SampledCounters::~SampledCounters() = default;

}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
