// SPDX-License-Identifier: MIT
#include "gpu/counter_api.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <dlfcn.h>

#include <string>

#include "base/error.hpp"
#include "gpu/counter_refusal.hpp"
#include "gpu/library.hpp"

namespace dnnsuite::gpu {

namespace {

const Library& cupti() {
    return Library::open("libcupti.so.13",
                         "pip install 'dnnsuite[counters]', or set CUDA_HOME to a toolkit of CUDA 13");
}

/// A torch of CUDA 12 brings CUPTI 12. Names and plans come from a copy beside it; the GPU has to be asked by one.
void require_one_cupti() {
    if (void* const other = dlopen("libcupti.so.12", RTLD_NOW | RTLD_NOLOAD)) {
        dlclose(other);
        throw Unavailable("the process has CUPTI 12 loaded, and counters are read with CUPTI 13", "the process",
                          "install a torch for CUDA 13");
    }
}

}  // namespace

#define DNNSUITE_FUNCTION(name) cupti().function<decltype(name)>(#name)

const CounterHostApi& counter_host_api() {
    static const CounterHostApi api{
        .get_version = DNNSUITE_FUNCTION(cuptiGetVersion),
        .get_supported_chips = DNNSUITE_FUNCTION(cuptiProfilerHostGetSupportedChips),
        .initialize = DNNSUITE_FUNCTION(cuptiProfilerHostInitialize),
        .deinitialize = DNNSUITE_FUNCTION(cuptiProfilerHostDeinitialize),
        .get_base_metrics = DNNSUITE_FUNCTION(cuptiProfilerHostGetBaseMetrics),
        .get_sub_metrics = DNNSUITE_FUNCTION(cuptiProfilerHostGetSubMetrics),
        .get_metric_properties = DNNSUITE_FUNCTION(cuptiProfilerHostGetMetricProperties),
        .config_add_metrics = DNNSUITE_FUNCTION(cuptiProfilerHostConfigAddMetrics),
        .get_config_image_size = DNNSUITE_FUNCTION(cuptiProfilerHostGetConfigImageSize),
        .get_config_image = DNNSUITE_FUNCTION(cuptiProfilerHostGetConfigImage),
        .get_num_of_passes = DNNSUITE_FUNCTION(cuptiProfilerHostGetNumOfPasses),
        .get_max_metrics_per_pass = DNNSUITE_FUNCTION(cuptiProfilerHostGetMaxNumHardwareMetricsPerPass),
        .evaluate = DNNSUITE_FUNCTION(cuptiProfilerHostEvaluateToGpuValues),
        .get_ranges = DNNSUITE_FUNCTION(cuptiRangeProfilerGetCounterDataInfo),
        .get_range = DNNSUITE_FUNCTION(cuptiRangeProfilerCounterDataGetRangeInfo),
        .get_samples = DNNSUITE_FUNCTION(cuptiPmSamplingGetCounterDataInfo),
        .get_sample = DNNSUITE_FUNCTION(cuptiPmSamplingCounterDataGetSampleInfo),
    };
    return api;
}

const CounterDeviceApi& counter_device_api() {
    require_one_cupti();
    static const CounterDeviceApi api{
        .initialize = DNNSUITE_FUNCTION(cuptiProfilerInitialize),
        .deinitialize = DNNSUITE_FUNCTION(cuptiProfilerDeInitialize),
        .device_supported = DNNSUITE_FUNCTION(cuptiProfilerDeviceSupported),
        .get_chip_name = DNNSUITE_FUNCTION(cuptiDeviceGetChipName),
        .get_availability = DNNSUITE_FUNCTION(cuptiProfilerGetCounterAvailability),
        .get_sampling_availability = DNNSUITE_FUNCTION(cuptiPmSamplingGetCounterAvailability),
    };
    return api;
}

const RangeApi& range_api() {
    static const RangeApi api{
        .enable = DNNSUITE_FUNCTION(cuptiRangeProfilerEnable),
        .disable = DNNSUITE_FUNCTION(cuptiRangeProfilerDisable),
        .get_image_size = DNNSUITE_FUNCTION(cuptiRangeProfilerGetCounterDataSize),
        .initialize_image = DNNSUITE_FUNCTION(cuptiRangeProfilerCounterDataImageInitialize),
        .set_config = DNNSUITE_FUNCTION(cuptiRangeProfilerSetConfig),
        .start = DNNSUITE_FUNCTION(cuptiRangeProfilerStart),
        .stop = DNNSUITE_FUNCTION(cuptiRangeProfilerStop),
        .push_range = DNNSUITE_FUNCTION(cuptiRangeProfilerPushRange),
        .pop_range = DNNSUITE_FUNCTION(cuptiRangeProfilerPopRange),
        .decode = DNNSUITE_FUNCTION(cuptiRangeProfilerDecodeData),
    };
    return api;
}

const PmSamplingApi& pm_sampling_api() {
    static const PmSamplingApi api{
        .enable = DNNSUITE_FUNCTION(cuptiPmSamplingEnable),
        .disable = DNNSUITE_FUNCTION(cuptiPmSamplingDisable),
        .set_config = DNNSUITE_FUNCTION(cuptiPmSamplingSetConfig),
        .get_image_size = DNNSUITE_FUNCTION(cuptiPmSamplingGetCounterDataSize),
        .initialize_image = DNNSUITE_FUNCTION(cuptiPmSamplingCounterDataImageInitialize),
        .start = DNNSUITE_FUNCTION(cuptiPmSamplingStart),
        .stop = DNNSUITE_FUNCTION(cuptiPmSamplingStop),
        .decode = DNNSUITE_FUNCTION(cuptiPmSamplingDecodeData),
    };
    return api;
}

#undef DNNSUITE_FUNCTION

void counter_check(CUptiResult result, const char* call) {
    if (result == CUPTI_SUCCESS) {
        return;
    }
    const int number = static_cast<int>(result);
    const std::string said = std::string(call) + ": " + cupti_result_name(number) + " (" + std::to_string(number) + ")";
    if (const CounterRefusal* const refusal = counter_refusal(number)) {
        throw Unavailable(std::string(refusal->reason) + "; " + said, "", refusal->remedy);
    }
    throw Error(said);
}

}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
