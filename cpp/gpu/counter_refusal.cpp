// SPDX-License-Identifier: MIT
#include "gpu/counter_refusal.hpp"

#include <array>

namespace dnnsuite::gpu {

namespace {

struct Row {
    int number;
    const char* name;
    CounterRefusal refusal;
};

constexpr const char* kOneAtATime =
    "stop ncu, `nsys --gpu-metrics-devices` or DCGM's profiling (`dcgmi profile --pause`), and try again";
constexpr const char* kPermission =
    "load the driver's module with NVreg_RestrictProfilingToAdminUsers=0 (then RmProfilingAdminOnly is 0 in "
    "/proc/driver/nvidia/params), or give the process CAP_SYS_ADMIN";

// By hand, so that a build without CUPTI's headers can name them, too; the test compares with the headers.
constexpr std::array<Row, 27> kRows{{
    {1, "CUPTI_ERROR_INVALID_PARAMETER", {nullptr, nullptr}},
    {2, "CUPTI_ERROR_INVALID_DEVICE", {nullptr, nullptr}},
    {3, "CUPTI_ERROR_INVALID_CONTEXT", {nullptr, nullptr}},
    {7, "CUPTI_ERROR_INVALID_OPERATION", {nullptr, nullptr}},
    {8, "CUPTI_ERROR_OUT_OF_MEMORY", {nullptr, nullptr}},
    {9, "CUPTI_ERROR_HARDWARE", {nullptr, nullptr}},
    {11, "CUPTI_ERROR_API_NOT_IMPLEMENTED", {nullptr, nullptr}},
    {12, "CUPTI_ERROR_MAX_LIMIT_REACHED", {nullptr, nullptr}},
    {14,
     "CUPTI_ERROR_NOT_COMPATIBLE",
     {"another use of CUPTI in this process excludes counters",
      "one at a time: leave torch.profiler, or run without its CUDA activities"}},
    {15, "CUPTI_ERROR_NOT_INITIALIZED", {nullptr, nullptr}},
    {17, "CUPTI_ERROR_INVALID_METRIC_NAME", {nullptr, nullptr}},
    {26, "CUPTI_ERROR_HARDWARE_BUSY", {"another profiler holds the GPU's counters", kOneAtATime}},
    {27,
     "CUPTI_ERROR_NOT_SUPPORTED",
     {"the GPU or the driver does not do that",
      "`dnnsuite metrics roles` lists the chips; MPS and shared MIG instances exclude counters: measure outside of "
      "them"}},
    {31,
     "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS",
     {"counters cannot be read under MPS", "stop the MPS server: echo quit | nvidia-cuda-mps-control"}},
    {33,
     "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED",
     {"this virtual GPU has no counters", "use a passed-through GPU, or a vGPU type with profiling"}},
    {35, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", {"the driver keeps the GPU's counters to administrators", kPermission}},
    {36,
     "CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED",
     {"the process uses CUPTI's old profiling interface", "run without the tool that does"}},
    {38,
     "CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED",
     {"the GPU has only CUPTI's new interface, and an old tool is in use", "use ncu and nsys instead of nvprof"}},
    {39,
     "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
     {"another profiler holds CUPTI in this process",
      "one at a time: leave torch.profiler, or run without nsys, ncu and cuda-gdb"}},
    {40,
     "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES",
     {"profiling is switched off for this virtual GPU", "have the host enable it (vGPU plugin: enable_profiling=1)"}},
    {41,
     "CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED",
     {"counters cannot be read under confidential computing", "measure on a machine in devtools or ordinary mode"}},
    {42, "CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED", {"a mining processor (CMP) has no counters", "use another GPU"}},
    {43,
     "CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED",
     {"this MIG instance has no counters of its own", "use an instance that owns its GPU instance, or switch MIG off"}},
    {44, "CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED", {"counters cannot be read under SLI", "switch SLI off"}},
    {45, "CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED", {"counters cannot be read under WSL here", "measure under Linux"}},
    {46, "CUPTI_ERROR_INVALID_CHIP_NAME", {nullptr, nullptr}},
    {999, "CUPTI_ERROR_UNKNOWN", {nullptr, nullptr}},
}};

const Row* row_of(int number) noexcept {
    for (const Row& row : kRows) {
        if (row.number == number) {
            return &row;
        }
    }
    return nullptr;
}

}  // namespace

const CounterRefusal* counter_refusal(int cupti_result) noexcept {
    const Row* const row = row_of(cupti_result);
    return row != nullptr && row->refusal.reason != nullptr ? &row->refusal : nullptr;
}

const char* cupti_result_name(int cupti_result) noexcept {
    const Row* const row = row_of(cupti_result);
    return row != nullptr ? row->name : "an unnamed error";
}

Unavailable built_without_cupti() {
    return Unavailable("this build of dnnsuite has no GPU counters: CUPTI's headers were missing", "the build",
                       "install the CUDA toolkit (or set CUDA_HOME) and reinstall dnnsuite");
}

}  // namespace dnnsuite::gpu
