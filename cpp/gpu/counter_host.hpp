// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/sealed_image.hpp"

namespace dnnsuite::gpu {

/// The two ways of collecting counters; each has names of its own.
enum class Collection { kRanges, kSampling };

struct MetricInfo {
    std::string type;  ///< "counter", "ratio" or "throughput"
    std::string description;
    std::string hardware_unit;  ///< where it is counted, as "sm"
    std::string unit;           ///< of a counter's value, as "instruction"; empty for a pure number
};

/// Configuration that a GPU is programmed with to collect metrics together.
struct CounterConfig {
    std::vector<std::uint8_t> image;
    std::size_t passes = 0;  ///< how often the same work would have to run
};

/// Values of the metrics asked for, range by range (or sample by sample); NaN where nothing was counted.
struct CounterValues {
    std::vector<std::string> names;           ///< of ranges
    std::vector<std::int64_t> t0_ns, t1_ns;   ///< of samples, by the GPU's clock
    std::vector<std::vector<double>> values;  ///< [ranges or samples][metrics]
};

/// CUPTI's knowledge of a chip's metrics. Needs no driver and no GPU. One thread at a time.
class CounterHost {
  public:
    virtual ~CounterHost() = default;

    /// Names without submetric, of one type: "counter", "ratio" or "throughput".
    virtual std::vector<std::string> metrics(const std::string& type) const = 0;
    /// Submetrics that may follow a name: ".avg", ".sum.per_second", ... Throws InvalidArgument for an unknown name.
    virtual std::vector<std::string> submetrics(const std::string& metric) const = 0;
    /// Throws InvalidArgument for an unknown name.
    virtual MetricInfo describe(const std::string& metric) const = 0;
    /// True if this full name, with its submetric, can be collected.
    virtual bool accepts(const std::string& metric) const = 0;
    /// The configuration of these metrics together; none when they cannot be mixed, because some are counted for the
    /// context and others (PCIe, NVLink) for the device. Throws InvalidArgument when one of them is not accepted.
    virtual std::optional<CounterConfig> configure(const std::vector<std::string>& metrics) const = 0;
    /// CUPTI's upper bound, which real sets do not reach.
    virtual std::size_t max_metrics_per_pass() const = 0;
    /// Values of an image as CUPTI filled it, while its `sampler` (cuptiPmSampling's object; nullptr for ranges) is there.
    virtual CounterValues evaluate(const std::vector<std::uint8_t>& image, const std::vector<std::string>& metrics,
                                   void* sampler) const = 0;
    /// Values of an image from anywhere. Throws Error for anything but one that this package has sealed.
    CounterValues evaluate_sealed(const std::uint8_t* sealed, std::size_t size,
                                  const std::vector<std::string>& metrics) const {
        return evaluate(unseal_image(sealed, size), metrics, nullptr);
    }
};

/// `availability` is what the GPU at hand says it has, or empty. Throws Unavailable without CUPTI, or when it does
/// not know the chip, or when the chip has no such collection; both say which chips there are.
std::unique_ptr<CounterHost> open_counter_host(const std::string& chip, Collection collection,
                                               const std::vector<std::uint8_t>& availability = {});

/// The chips that CUPTI has heard of, as "GH100"; some have no counters that it can collect.
std::vector<std::string> counter_chips();
/// As 130001 for CUDA 13.0. Throws Unavailable without CUPTI.
std::uint32_t cupti_version();

}  // namespace dnnsuite::gpu
