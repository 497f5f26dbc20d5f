// SPDX-License-Identifier: MIT
// Counts bank conflicts where the CUDA kernels run on the host (tests/cpp/fused/kernels): the compiler's instrumentation
// for races calls what is here at each access. Those of a warp's lanes that come from one place in the code, each lane's
// k-th with every other's k-th, are one access of the warp; on a GPU those to one bank are made one after the other, but
// for those to one word. At the end a line for each place goes to $BANKS_OUT: address, bytes, most at one bank, mean.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "fused/kernels/host_cuda/runtime.hpp"

extern char __data_start, _end;  // where variables of the program are, a kernel's shared arrays among them

namespace {

using Lanes = std::array<std::vector<uintptr_t>, host_cuda::kLanes>;
constexpr size_t kBanks = 32, kBankBytes = 4;

struct Place {
    size_t bytes = 0, most = 0;
    double accesses = 0, turns = 0;
};

std::map<std::pair<size_t, uintptr_t>, Lanes> of_block;  // by warp and place in the code
std::map<uintptr_t, Place> places;

bool within(const void* p, const void* first, size_t bytes) {
    const auto at = reinterpret_cast<uintptr_t>(p), begin = reinterpret_cast<uintptr_t>(first);
    return at >= begin && at < begin + bytes;
}

bool is_shared(const void* p) {
    if (within(p, host_cuda::dynamic_shared(), host_cuda::kSharedBytes)) return true;
    if (!within(p, &__data_start, static_cast<size_t>(&_end - &__data_start))) return false;
    for (const dim3* index : {&threadIdx, &blockIdx, &blockDim, &gridDim})
        if (within(p, index, sizeof(dim3))) return false;
    return true;
}

void seen(const void* p, size_t bytes, void* from) {
    if (!host_cuda::in_kernel || !is_shared(p)) return;
    const size_t thread = threadIdx.x + blockDim.x * (threadIdx.y + size_t{blockDim.y} * threadIdx.z);
    const auto place = reinterpret_cast<uintptr_t>(from);
    places[place].bytes = bytes;
    of_block[{thread / host_cuda::kLanes, place}][thread % host_cuda::kLanes].push_back(reinterpret_cast<uintptr_t>(p));
}

/// Turns that an access takes: 128 bytes at most are moved at a time, for as many lanes as that is enough for.
size_t turns_of(const Lanes& lanes, size_t k, size_t bytes) {
    const size_t together = bytes <= kBankBytes ? lanes.size() : lanes.size() * kBankBytes / bytes;
    size_t most = 0;
    for (size_t first = 0; first < lanes.size(); first += together) {
        std::array<std::set<uintptr_t>, kBanks> words;
        for (size_t lane = first; lane < first + together; ++lane) {
            if (k >= lanes[lane].size()) continue;
            for (size_t at = 0; at < bytes; at += kBankBytes) {
                const uintptr_t word = (lanes[lane][k] + at) / kBankBytes;
                words[word % kBanks].insert(word);
            }
        }
        for (const auto& of_bank : words) most = of_bank.size() > most ? of_bank.size() : most;
    }
    return most;
}

void count_block() {
    for (const auto& [key, lanes] : of_block) {
        Place& place = places[key.second];
        size_t count = 0;
        for (const auto& of_lane : lanes) count = of_lane.size() > count ? of_lane.size() : count;
        for (size_t k = 0; k < count; ++k) {
            const size_t turns = turns_of(lanes, k, place.bytes);
            place.most = turns > place.most ? turns : place.most;
            place.accesses += 1;
            place.turns += static_cast<double>(turns);
        }
    }
    of_block.clear();
}

struct Report {
    Report() { host_cuda::after_block = count_block; }
    ~Report() {
        std::FILE* file = std::fopen(std::getenv("BANKS_OUT"), "w");
        for (const auto& [address, place] : places)
            if (place.accesses > 0)
                std::fprintf(file, "%#zx %zu %zu %.3f\n", static_cast<size_t>(address), place.bytes, place.most,
                             place.turns / place.accesses);
        std::fclose(file);
    }
} report;

}  // namespace

#define DNNSUITE_SEEN(name, bytes) \
    void __tsan_##name(void* p) { seen(p, bytes, __builtin_return_address(0)); }
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
unsigned char __tsan_atomic8_load(const volatile unsigned char* p, int) { return *p; }  // of what is made at first use
DNNSUITE_SEEN(read1, 1)
DNNSUITE_SEEN(read2, 2)
DNNSUITE_SEEN(read4, 4)
DNNSUITE_SEEN(read8, 8)
DNNSUITE_SEEN(read16, 16)
DNNSUITE_SEEN(write1, 1)
DNNSUITE_SEEN(write2, 2)
DNNSUITE_SEEN(write4, 4)
DNNSUITE_SEEN(write8, 8)
DNNSUITE_SEEN(write16, 16)
DNNSUITE_SEEN(unaligned_read2, 2)
DNNSUITE_SEEN(unaligned_read4, 4)
DNNSUITE_SEEN(unaligned_read8, 8)
DNNSUITE_SEEN(unaligned_read16, 16)
DNNSUITE_SEEN(unaligned_write2, 2)
DNNSUITE_SEEN(unaligned_write4, 4)
DNNSUITE_SEEN(unaligned_write8, 8)
DNNSUITE_SEEN(unaligned_write16, 16)
void __tsan_read_range(void* p, size_t bytes) { seen(p, bytes, __builtin_return_address(0)); }
void __tsan_write_range(void* p, size_t bytes) { seen(p, bytes, __builtin_return_address(0)); }
}
