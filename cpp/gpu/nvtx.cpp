// SPDX-License-Identifier: MIT
#include "gpu/nvtx.hpp"

#include "base/error.hpp"

#ifdef DNNSUITE_HAS_NVTX

#include <nvtx3/nvToolsExt.h>

#include <map>
#include <mutex>

namespace dnnsuite::gpu {

namespace {

// Made at the first use, when a tool that was named in the environment is loaded.
nvtxDomainHandle_t domain() noexcept {
    static const nvtxDomainHandle_t ours = nvtxDomainCreateA("dnnsuite");
    return ours;
}

nvtxEventAttributes_t attributes(NvtxName name, std::int64_t step) noexcept {
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    event.payload.llValue = step;
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = static_cast<nvtxStringHandle_t>(const_cast<void*>(name));
    return event;
}

}  // namespace

NvtxName nvtx_name(const std::string& name) {
    static std::mutex mutex;
    static auto* const known = new std::map<std::string, NvtxName>;  // never destroyed: used at exit
    const std::lock_guard lock(mutex);
    const auto found = known->find(name);
    if (found != known->end()) return found->second;
    const NvtxName registered = nvtxDomainRegisterStringA(domain(), name.c_str());
    return known->emplace(name, registered).first->second;
}

void nvtx_push(NvtxName name, std::int64_t step) noexcept {
    const nvtxEventAttributes_t event = attributes(name, step);
    nvtxDomainRangePushEx(domain(), &event);
}

void nvtx_pop() noexcept { nvtxDomainRangePop(domain()); }

void nvtx_mark(NvtxName name, std::int64_t step) noexcept {
    const nvtxEventAttributes_t event = attributes(name, step);
    nvtxDomainMarkEx(domain(), &event);
}

std::uint64_t nvtx_start(NvtxName name, std::int64_t step) noexcept {
    const nvtxEventAttributes_t event = attributes(name, step);
    return nvtxDomainRangeStartEx(domain(), &event);
}

void nvtx_stop(std::uint64_t range) noexcept { nvtxDomainRangeEnd(domain(), range); }

}  // namespace dnnsuite::gpu

#else

namespace dnnsuite::gpu {

NvtxName nvtx_name(const std::string&) {
    throw Unavailable("NVTX ranges: this build was made without the headers", "nvtx3/nvToolsExt.h",
                      "install the CUDA toolkit (or set CUDA_HOME) and reinstall dnnsuite");
}

// Nothing gets here: there is no name without a build that has NVTX.
void nvtx_push(NvtxName, std::int64_t) noexcept {}
void nvtx_pop() noexcept {}
void nvtx_mark(NvtxName, std::int64_t) noexcept {}
std::uint64_t nvtx_start(NvtxName, std::int64_t) noexcept { return 0; }
void nvtx_stop(std::uint64_t) noexcept {}

}  // namespace dnnsuite::gpu

#endif
