// SPDX-License-Identifier: MIT
// Buffers laid out as CUPTI lays them out, with the headers' own structs, for the real walker to walk.
#pragma once

#ifdef DNNSUITE_HAS_CUPTI

#include <cupti.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "gpu/cupti.hpp"
#include "gpu/library.hpp"

namespace dnnsuite::gpu {

/// The real CUPTI's functions; nullptr where it is not installed, or where its records are not those of the headers.
inline const CuptiActivityApi* real_cupti() {
    const char* const home = std::getenv("CUDA_HOME");
    add_library_folder(std::string(home != nullptr ? home : "/usr/local/cuda") + "/lib64");
    try {
        const CuptiActivityApi& api = cupti_activity_api();
        std::uint32_t version = 0;
        api.get_version(&version);
        return version == CUPTI_API_VERSION ? &api : nullptr;
    } catch (const Unavailable&) {
        return nullptr;
    }
}

#define DNNSUITE_REQUIRE_CUPTI()                                                                                      \
    const CuptiActivityApi* const cupti = real_cupti();                                                               \
    if (cupti == nullptr) {                                                                                           \
        GTEST_SKIP() << "no libcupti.so.13 of the headers' version: pip install nvidia-cuda-cupti, or set CUDA_HOME"; \
    }

template <class Record>
Record record_of(CUpti_ActivityKind kind) {
    Record record;
    std::memset(&record, 0, sizeof record);
    record.kind = kind;
    return record;
}

inline CUpti_ActivityKernel10 kernel_record(std::uint64_t start, std::uint64_t end, const char* name,
                                            std::uint32_t correlation = 0) {
    auto record = record_of<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    record.start = start;
    record.end = end;
    record.name = name;
    record.correlationId = correlation;
    return record;
}

inline CUpti_ActivityAPI api_record(std::uint64_t start, std::uint64_t end, std::uint32_t correlation) {
    auto record = record_of<CUpti_ActivityAPI>(CUPTI_ACTIVITY_KIND_RUNTIME);
    record.start = start;
    record.end = end;
    record.correlationId = correlation;
    return record;
}

/// Records one behind the other.
class Records {
  public:
    template <class Record>
    Records& add(const Record& record) {
        static_assert(sizeof(Record) % sizeof(std::uint64_t) == 0);
        const std::size_t before = words_.size();
        words_.resize(before + sizeof(Record) / sizeof(std::uint64_t));
        std::memcpy(words_.data() + before, &record, sizeof record);
        return *this;
    }
    std::span<std::uint8_t> bytes() {
        return {reinterpret_cast<std::uint8_t*>(words_.data()), words_.size() * sizeof(std::uint64_t)};
    }

  private:
    std::vector<std::uint64_t> words_;
};

}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
