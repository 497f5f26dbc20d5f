// SPDX-License-Identifier: MIT
// A tool in the sense of NVTX: named by NVTX_INJECTION64_PATH, it writes each call as a line to $NVTX_TOOL_LOG.
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace {

std::mutex mutex;
FILE* log_file;
std::map<const void*, std::string> strings;
std::map<const void*, std::string> domains;
unsigned long long last_range = 100;

void line(const char* what, nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event, unsigned long long range) {
    const std::lock_guard lock(mutex);
    std::string name = "-", kind = "-", payload = "-";
    if (event != nullptr) {
        kind = event->messageType == NVTX_MESSAGE_TYPE_REGISTERED ? "registered" : "other";
        if (kind == "registered") name = strings[event->message.registered];
        if (event->payloadType == NVTX_PAYLOAD_TYPE_INT64) payload = std::to_string(event->payload.llValue);
    }
    std::fprintf(log_file, "%d %d %s %s %s %s %s %llu\n", getpid(), gettid(), what, domains[domain].c_str(), kind.c_str(),
                 name.c_str(), payload.c_str(), range);
    std::fflush(log_file);
}

nvtxDomainHandle_t create(const char* name) {
    auto* const handle = reinterpret_cast<nvtxDomainHandle_t>(new int);
    domains[handle] = name;
    return handle;
}
nvtxStringHandle_t register_string(nvtxDomainHandle_t, const char* text) {
    auto* const handle = reinterpret_cast<nvtxStringHandle_t>(new int);
    const std::lock_guard lock(mutex);
    strings[handle] = text;
    return handle;
}
int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
    line("push", domain, event, 0);
    return 0;
}
int pop(nvtxDomainHandle_t domain) {
    line("pop", domain, nullptr, 0);
    return 0;
}
void mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) { line("mark", domain, event, 0); }
nvtxRangeId_t start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
    line("start", domain, event, ++last_range);
    return last_range;
}
void end(nvtxDomainHandle_t domain, nvtxRangeId_t range) { line("end", domain, nullptr, range); }

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    log_file = std::fopen(std::getenv("NVTX_TOOL_LOG"), "a");
    const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
    NvtxFunctionTable table = nullptr;
    unsigned size = 0;
    if (log_file == nullptr || callbacks == nullptr ||
        callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0)
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create);
    *table[NVTX_CBID_CORE2_DomainRegisterStringA] = reinterpret_cast<NvtxFunctionPointer>(register_string);
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
    *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
    *table[NVTX_CBID_CORE2_DomainMarkEx] = reinterpret_cast<NvtxFunctionPointer>(mark);
    *table[NVTX_CBID_CORE2_DomainRangeStartEx] = reinterpret_cast<NvtxFunctionPointer>(start);
    *table[NVTX_CBID_CORE2_DomainRangeEnd] = reinterpret_cast<NvtxFunctionPointer>(end);
    return 1;
}
