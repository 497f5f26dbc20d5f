// SPDX-License-Identifier: MIT
#include "gpu/counter_device.hpp"

#include <utility>

#include "base/error.hpp"
#include "gpu/counter_api.hpp"
#include "gpu/counter_refusal.hpp"
#include "gpu/driver.hpp"
#include "gpu/library.hpp"

namespace dnnsuite::gpu {

#ifdef DNNSUITE_HAS_CUPTI

namespace {

const Library& driver() { return Library::open("libcuda.so.1", ""); }

void check(CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) {
        return;
    }
    const char* text = nullptr;
    driver().function<decltype(cuGetErrorString)>("cuGetErrorString")(result, &text);
    throw Unavailable(std::string(call) + ": " + (text != nullptr ? text : "unknown error") + " (" +
                          std::to_string(static_cast<int>(result)) + ")",
                      driver().path(), "`nvidia-smi` and CUDA_VISIBLE_DEVICES say which GPUs this process may use");
}

void* primary_context(int ordinal) {
    require_driver();
    CUdevice device = 0;
    check(driver().function<decltype(cuDeviceGet)>("cuDeviceGet")(&device, ordinal), "cuDeviceGet");
    CUcontext context = nullptr;
    check(driver().function<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, device),
          "cuDevicePrimaryCtxRetain");
    return context;
}

// By its name in the library: cuda.h gives it the suffix by a macro, which a decltype would not show.
void release_primary_context(int ordinal) noexcept {
    using Release = CUresult(CUdevice);
    if (void* const address = driver().find("cuDevicePrimaryCtxRelease_v2")) {
        reinterpret_cast<Release*>(address)(ordinal);
    }
}

const char* level_name(CUpti_Profiler_Support_Level level) {
    switch (level) {
        case CUPTI_PROFILER_CONFIGURATION_SUPPORTED: return "supported";
        case CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED: return "unsupported";
        case CUPTI_PROFILER_CONFIGURATION_DISABLED: return "disabled";
        default: return "unknown";
    }
}

CounterSupport support_of(int ordinal, CUpti_Profiler_API api, const char* name) {
    auto params = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_DeviceSupported_Params);
    params.cuDevice = ordinal;
    params.api = api;
    counter_check(counter_device_api().device_supported(&params), "cuptiProfilerDeviceSupported");
    return {name,
            level_name(params.isSupported),
            {{"architecture", level_name(params.architecture)},
             {"sli", level_name(params.sli)},
             {"vgpu", level_name(params.vGpu)},
             {"confidential_compute", level_name(params.confidentialCompute)},
             {"cmp", level_name(params.cmp)},
             {"wsl", level_name(params.wsl)}}};
}

/// Asks for the size, then for the image.
template <class Params, class Function>
std::vector<std::uint8_t> availability_image(Params params, Function* function, const char* call) {
    counter_check(function(&params), call);
    std::vector<std::uint8_t> image(params.counterAvailabilityImageSize);
    params.pCounterAvailabilityImage = image.data();
    counter_check(function(&params), call);
    return image;
}

}  // namespace

CounterDevice::CounterDevice(int ordinal) : ordinal_(ordinal), context_(primary_context(ordinal)) {
    try {
        const CounterDeviceApi& api = counter_device_api();
        auto initialize = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_Initialize_Params);
        counter_check(api.initialize(&initialize), "cuptiProfilerInitialize");
        auto name = DNNSUITE_CUPTI_PARAMS(CUpti_Device_GetChipName_Params);
        name.deviceIndex = static_cast<std::size_t>(ordinal);
        counter_check(api.get_chip_name(&name), "cuptiDeviceGetChipName");
        chip_ = name.pChipName;
    } catch (...) {
        release_primary_context(ordinal_);
        throw;
    }
}

CounterDevice::~CounterDevice() {
    // CUPTI's profiler stays initialised: another session of this process may be using it.
    release_primary_context(ordinal_);
}

std::vector<std::uint8_t> CounterDevice::availability(Collection collection) const {
    const CounterDeviceApi& api = counter_device_api();
    if (collection == Collection::kRanges) {
        auto params = DNNSUITE_CUPTI_PARAMS(CUpti_Profiler_GetCounterAvailability_Params);
        params.ctx = static_cast<CUcontext>(context_);
        return availability_image(params, api.get_availability, "cuptiProfilerGetCounterAvailability");
    }
    auto params = DNNSUITE_CUPTI_PARAMS(CUpti_PmSampling_GetCounterAvailability_Params);
    params.deviceIndex = static_cast<std::size_t>(ordinal_);
    return availability_image(params, api.get_sampling_availability, "cuptiPmSamplingGetCounterAvailability");
}

std::vector<CounterSupport> CounterDevice::support() const {
    return {support_of(ordinal_, CUPTI_PROFILER_RANGE_PROFILING, "ranges"),
            support_of(ordinal_, CUPTI_PROFILER_PM_SAMPLING, "sampling"),
            support_of(ordinal_, CUPTI_PROFILER_SASS_METRICS, "sass"),
            support_of(ordinal_, CUPTI_PROFILER_PC_SAMPLING, "pc_sampling")};
}

#else

CounterDevice::CounterDevice(int ordinal) : ordinal_(ordinal) { throw built_without_cupti(); }
CounterDevice::~CounterDevice() = default;
std::vector<std::uint8_t> CounterDevice::availability(Collection) const { return {}; }
std::vector<CounterSupport> CounterDevice::support() const { return {}; }

#endif

}  // namespace dnnsuite::gpu
