// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gpu/counter_host.hpp"

namespace dnnsuite::gpu {

/// State of one of CUPTI's interfaces on a device, with each condition for it:
/// "supported", "unsupported", "disabled" or "unknown".
struct CounterSupport {
    std::string interface;  ///< "ranges", "sampling", "sass" or "pc_sampling"
    std::string overall;
    std::map<std::string, std::string> conditions;  ///< architecture, sli, vgpu, confidential_compute, cmp, wsl
};

/// A GPU whose counters are to be read: holds its primary context, which is torch's, and CUPTI's profiler.
class CounterDevice {
  public:
    /// `ordinal` as CUDA counts. Throws Unavailable without driver, GPU or CUPTI, each with what helps.
    explicit CounterDevice(int ordinal);
    ~CounterDevice();
    CounterDevice(const CounterDevice&) = delete;
    CounterDevice& operator=(const CounterDevice&) = delete;

    const std::string& chip() const noexcept { return chip_; }
    int ordinal() const noexcept { return ordinal_; }
    /// Its CUcontext.
    void* context() const noexcept { return context_; }
    /// Units of the chip that this GPU has, for open_counter_host. Throws Unavailable when it may not be read.
    std::vector<std::uint8_t> availability(Collection collection) const;
    std::vector<CounterSupport> support() const;

  private:
    int ordinal_;
    void* context_ = nullptr;
    std::string chip_;
};

}  // namespace dnnsuite::gpu
