// SPDX-License-Identifier: MIT
// Sessions with all that they need: the device, the chip's metrics as this device has them, CUPTI's functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu/counter_device.hpp"
#include "gpu/counter_host.hpp"
#include "gpu/pm_sampling.hpp"
#include "gpu/range_session.hpp"

namespace dnnsuite::gpu {

/// A RangeSession on a device. Throws what that and open_counter_host throw.
class RangeCounters {
  public:
    RangeCounters(std::shared_ptr<CounterDevice> device, std::vector<std::vector<std::string>> groups, bool kernels,
                  std::size_t max_ranges);
    ~RangeCounters();
    RangeSession& session() noexcept { return *session_; }

  private:
    std::shared_ptr<CounterDevice> device_;
    std::unique_ptr<RangeSession> session_;
};

/// A PmSampler on a device. Throws what that and open_counter_host throw.
class SampledCounters {
  public:
    SampledCounters(std::shared_ptr<CounterDevice> device, std::vector<std::string> metrics, std::uint64_t interval,
                    bool interval_in_cycles, bool keep_latest, std::size_t hardware_buffer_bytes);
    ~SampledCounters();
    PmSampler& sampler() noexcept { return *sampler_; }

  private:
    std::shared_ptr<CounterDevice> device_;
    std::unique_ptr<CounterHost> host_;
    std::unique_ptr<PmSampler> sampler_;
};

}  // namespace dnnsuite::gpu
