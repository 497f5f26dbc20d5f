// SPDX-License-Identifier: MIT
// CUPTI's counters by function pointers: nothing of CUDA is linked, and tests hand in tables of their own.
#pragma once

#ifdef DNNSUITE_HAS_CUPTI

#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#include <cupti_version.h>

namespace dnnsuite::gpu {

/// Names, passes, configurations and evaluation: works without a driver and without a GPU.
struct CounterHostApi {
    decltype(cuptiGetVersion)* get_version;
    decltype(cuptiProfilerHostGetSupportedChips)* get_supported_chips;
    decltype(cuptiProfilerHostInitialize)* initialize;
    decltype(cuptiProfilerHostDeinitialize)* deinitialize;
    decltype(cuptiProfilerHostGetBaseMetrics)* get_base_metrics;
    decltype(cuptiProfilerHostGetSubMetrics)* get_sub_metrics;
    decltype(cuptiProfilerHostGetMetricProperties)* get_metric_properties;
    decltype(cuptiProfilerHostConfigAddMetrics)* config_add_metrics;
    decltype(cuptiProfilerHostGetConfigImageSize)* get_config_image_size;
    decltype(cuptiProfilerHostGetConfigImage)* get_config_image;
    decltype(cuptiProfilerHostGetNumOfPasses)* get_num_of_passes;
    decltype(cuptiProfilerHostGetMaxNumHardwareMetricsPerPass)* get_max_metrics_per_pass;
    decltype(cuptiProfilerHostEvaluateToGpuValues)* evaluate;
    decltype(cuptiRangeProfilerGetCounterDataInfo)* get_ranges;
    decltype(cuptiRangeProfilerCounterDataGetRangeInfo)* get_range;
    decltype(cuptiPmSamplingGetCounterDataInfo)* get_samples;
    decltype(cuptiPmSamplingCounterDataGetSampleInfo)* get_sample;
};

/// Quantities that a GPU can measure.
struct CounterDeviceApi {
    decltype(cuptiProfilerInitialize)* initialize;
    decltype(cuptiProfilerDeInitialize)* deinitialize;
    decltype(cuptiProfilerDeviceSupported)* device_supported;
    decltype(cuptiDeviceGetChipName)* get_chip_name;
    decltype(cuptiProfilerGetCounterAvailability)* get_availability;
    decltype(cuptiPmSamplingGetCounterAvailability)* get_sampling_availability;
};

/// Counters over ranges of a context's work.
struct RangeApi {
    decltype(cuptiRangeProfilerEnable)* enable;
    decltype(cuptiRangeProfilerDisable)* disable;
    decltype(cuptiRangeProfilerGetCounterDataSize)* get_image_size;
    decltype(cuptiRangeProfilerCounterDataImageInitialize)* initialize_image;
    decltype(cuptiRangeProfilerSetConfig)* set_config;
    decltype(cuptiRangeProfilerStart)* start;
    decltype(cuptiRangeProfilerStop)* stop;
    decltype(cuptiRangeProfilerPushRange)* push_range;
    decltype(cuptiRangeProfilerPopRange)* pop_range;
    decltype(cuptiRangeProfilerDecodeData)* decode;
};

/// Counters of a whole device over time.
struct PmSamplingApi {
    decltype(cuptiPmSamplingEnable)* enable;
    decltype(cuptiPmSamplingDisable)* disable;
    decltype(cuptiPmSamplingSetConfig)* set_config;
    decltype(cuptiPmSamplingGetCounterDataSize)* get_image_size;
    decltype(cuptiPmSamplingCounterDataImageInitialize)* initialize_image;
    decltype(cuptiPmSamplingStart)* start;
    decltype(cuptiPmSamplingStop)* stop;
    decltype(cuptiPmSamplingDecodeData)* decode;
};

/// The tables of the real library. Each throws Unavailable where there is none, saying where it was looked for.
const CounterHostApi& counter_host_api();
const CounterDeviceApi& counter_device_api();
const RangeApi& range_api();
const PmSamplingApi& pm_sampling_api();

/// Throws for any result but success: Unavailable with the way out where the machine or another tool forbids counters,
/// Error otherwise.
void counter_check(CUptiResult result, const char* call);

/// CUPTI's parameters: every one begins with its own size.
template <class Params>
Params sized(std::size_t size) {
    Params params{};
    params.structSize = size;
    return params;
}
#define DNNSUITE_CUPTI_PARAMS(type) ::dnnsuite::gpu::sized<type>(type##_STRUCT_SIZE)

}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
