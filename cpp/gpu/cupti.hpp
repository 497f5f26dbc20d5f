// SPDX-License-Identifier: MIT
// Activity records and the subscriber of CUPTI, by function pointers: nothing of CUDA is linked.
#pragma once

#ifdef DNNSUITE_HAS_CUPTI

#include <cupti.h>

#include <cstdint>
#include <string>

namespace dnnsuite::gpu {

/// The functions that this package calls for activity records. Tests hand in a table of their own.
struct CuptiActivityApi {
    decltype(cuptiGetVersion)* get_version;
    decltype(cuptiGetResultString)* get_result_string;
    decltype(cuptiGetCallbackName)* get_callback_name;
    decltype(cuptiSubscribe_v2)* subscribe;
    decltype(cuptiUnsubscribe)* unsubscribe;
    decltype(cuptiGetTimestamp)* get_timestamp;
    decltype(cuptiActivityRegisterTimestampCallback)* register_timestamp;
    decltype(cuptiActivityRegisterCallbacks)* register_callbacks;
    decltype(cuptiActivitySetAttribute)* set_attribute;
    decltype(cuptiActivityEnable)* enable;
    decltype(cuptiActivityDisable)* disable;
    decltype(cuptiActivityEnableRuntimeApi)* enable_runtime_api;
    decltype(cuptiActivityEnableDriverApi)* enable_driver_api;
    decltype(cuptiActivityFlushAll)* flush_all;
    decltype(cuptiActivityGetNumDroppedRecords)* get_num_dropped_records;
    decltype(cuptiActivityGetNextRecord)* get_next_record;
    decltype(cuptiFinalize)* finalize;
};

/// The table of the real library: the copy that torch has loaded, a wheel's, or the toolkit's.
/// Throws Unavailable without one, or when the process has CUPTI 12, whose records are laid out otherwise.
const CuptiActivityApi& cupti_activity_api();

/// Throws for any result but success: Unavailable when a GPU is held or forbidden, with the way out; Error otherwise.
void cupti_check(const CuptiActivityApi& api, CUptiResult result, const char* call);

/// The name of a recorded call, "cudaLaunchKernel": `domain` 1 is the runtime, 0 the driver; "" for an unknown one.
std::string cupti_function_name(const CuptiActivityApi& api, std::uint8_t domain, std::uint32_t callback);

}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
