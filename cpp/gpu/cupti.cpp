// SPDX-License-Identifier: MIT
#include "gpu/cupti.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <dlfcn.h>

#include <string>

#include "base/error.hpp"
#include "gpu/library.hpp"

namespace dnnsuite::gpu {

namespace {

constexpr const char* kRemedy = "pip install 'dnnsuite[counters]', or set CUDA_HOME to a toolkit of CUDA 13";
constexpr std::uint32_t kOldest = 130000;  // CUDA 13.0: the records that the headers describe, or longer ones

CuptiActivityApi load() {
    // A torch of CUDA 12 brings CUPTI 12: beside it a second copy would see nothing.
    if (void* const other = dlopen("libcupti.so.12", RTLD_NOW | RTLD_NOLOAD)) {
        dlclose(other);
        throw Unavailable("the process has CUPTI 12 loaded, this package reads the records of CUPTI 13", "the process",
                          "install a torch for CUDA 13");
    }
    const Library& library = Library::open("libcupti.so.13", kRemedy);
#define DNNSUITE_FUNCTION(name) library.function<decltype(name)>(#name)
    const CuptiActivityApi api{
        .get_version = DNNSUITE_FUNCTION(cuptiGetVersion),
        .get_result_string = DNNSUITE_FUNCTION(cuptiGetResultString),
        .get_callback_name = DNNSUITE_FUNCTION(cuptiGetCallbackName),
        .subscribe = DNNSUITE_FUNCTION(cuptiSubscribe_v2),
        .unsubscribe = DNNSUITE_FUNCTION(cuptiUnsubscribe),
        .get_timestamp = DNNSUITE_FUNCTION(cuptiGetTimestamp),
        .register_timestamp = DNNSUITE_FUNCTION(cuptiActivityRegisterTimestampCallback),
        .register_callbacks = DNNSUITE_FUNCTION(cuptiActivityRegisterCallbacks),
        .set_attribute = DNNSUITE_FUNCTION(cuptiActivitySetAttribute),
        .enable = DNNSUITE_FUNCTION(cuptiActivityEnable),
        .disable = DNNSUITE_FUNCTION(cuptiActivityDisable),
        .enable_runtime_api = DNNSUITE_FUNCTION(cuptiActivityEnableRuntimeApi),
        .enable_driver_api = DNNSUITE_FUNCTION(cuptiActivityEnableDriverApi),
        .flush_all = DNNSUITE_FUNCTION(cuptiActivityFlushAll),
        .get_num_dropped_records = DNNSUITE_FUNCTION(cuptiActivityGetNumDroppedRecords),
        .get_next_record = DNNSUITE_FUNCTION(cuptiActivityGetNextRecord),
        .finalize = DNNSUITE_FUNCTION(cuptiFinalize),
    };
#undef DNNSUITE_FUNCTION
    std::uint32_t version = 0;
    cupti_check(api, api.get_version(&version), "cuptiGetVersion");
    if (version < kOldest) {
        throw Unavailable("CUPTI " + std::to_string(version) + " is older than " + std::to_string(kOldest),
                          library.path(), kRemedy);
    }
    return api;
}

}  // namespace

const CuptiActivityApi& cupti_activity_api() {
    static const CuptiActivityApi api = load();  // tried again after a throw
    return api;
}

void cupti_check(const CuptiActivityApi& api, CUptiResult result, const char* call) {
    if (result == CUPTI_SUCCESS) {
        return;
    }
    const char* text = nullptr;
    api.get_result_string(result, &text);
    const std::string said = std::string(call) + ": " + (text != nullptr ? text : "unknown error") + " (" +
                             std::to_string(static_cast<int>(result)) + ")";
    switch (result) {
        case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
            throw Unavailable("another profiler holds CUPTI in this process; " + said, "",
                              "one at a time: torch.profiler keeps it once it was used, so take a new process; run "
                              "without nsys, ncu, cuda-gdb");
        case CUPTI_ERROR_NOT_COMPATIBLE:
            throw Unavailable(
                "another use of CUPTI in this process excludes this one; " + said, "",
                "one profiler in a process: torch.profiler after ours, or ours after it, takes a new one");
        case CUPTI_ERROR_HARDWARE_BUSY:
            throw Unavailable("another profiler holds the GPU; " + said, "",
                              "stop ncu, nsys --gpu-metrics-devices or DCGM's profiling (dcgmi profile --pause)");
        case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
        case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
            throw Unavailable("the driver does not let this user profile; " + said,
                              "/proc/driver/nvidia/params (RmProfilingAdminOnly)",
                              "load the module with NVreg_RestrictProfilingToAdminUsers=0, or give CAP_SYS_ADMIN");
        default: throw Error(said);
    }
}

std::string cupti_function_name(const CuptiActivityApi& api, std::uint8_t domain, std::uint32_t callback) {
    const char* name = nullptr;
    const CUpti_CallbackDomain where = domain == 1 ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API;
    if (api.get_callback_name(where, callback, &name) != CUPTI_SUCCESS || name == nullptr) {
        return "";
    }
    const std::string full = name;
    // The runtime's names end in the version that brought them, "_v7000"; a short "_v2" is part of the function's own.
    const std::size_t version = full.rfind("_v");
    const bool dated = version != std::string::npos && full.size() >= version + 6;
    return dated ? full.substr(0, version) : full;
}

}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
