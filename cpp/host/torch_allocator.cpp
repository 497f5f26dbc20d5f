// SPDX-License-Identifier: MIT
// torch's CPU tensors in a BlockPool, from dnnsuite_memory_begin to dnnsuite_memory_end. torch has one CPU allocator per
// process, so between the two every large CPU tensor comes from the pool; afterwards torch's own allocator serves again,
// and a tensor of the pool that lives on is unmapped when it is freed. c10::Allocator is no part of torch's stable ABI,
// so this is a library of its own, which names the torch it was built for: Python opens it under no other.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <pthread.h>
#include <torch/headeronly/version.h>

#include <cstdint>
#include <mutex>

#include "host/block_pool.hpp"

namespace {

using dnnsuite::host::BlockPool;

BlockPool& pool() {
    static BlockPool* const shared = new BlockPool;  // outlives every tensor
    return *shared;
}

void give(void* pointer) {
    c10::profiledCPUMemoryReporter().Delete(pointer);
    pool().give(pointer);
}

struct PoolAllocator final : c10::Allocator {
    c10::DataPtr allocate(std::size_t size) override {
        const c10::Device device(c10::DeviceType::CPU);
        if (size == 0) return {nullptr, nullptr, &give, device};
        void* pointer = pool().take(size);
        if (pointer == nullptr) {
            c10::profiledCPUMemoryReporter().OutOfMemory(size);
            C10_THROW_ERROR(OutOfMemoryError, "dnnsuite: can't allocate memory: a tensor of " + std::to_string(size) +
                                                  " bytes on the CPU: train fewer models at once, or smaller batches");
        }
        c10::profiledCPUMemoryReporter().New(pointer, size);
        return {pointer, pointer, &give, device};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give; }
    void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }
};

// Never destroyed: a tensor of the pool asks its allocator when it grows, which may be after dnnsuite_memory_end.
PoolAllocator& allocator() {
    static PoolAllocator* const shared = new PoolAllocator;
    return *shared;
}

constexpr std::uint8_t kPriority = 1;  // torch ignores an allocator of less priority than the one that serves
c10::Allocator* before = nullptr;      // guarded by Python's lock around begin and end

}  // namespace

#define DNNSUITE_EXPORT __attribute__((visibility("default")))

extern "C" {

/// The version of torch that this was built for, as 2.13.0.
DNNSUITE_EXPORT const char* dnnsuite_memory_torch() {
#define DNNSUITE_TEXT_(x) #x
#define DNNSUITE_TEXT(x) DNNSUITE_TEXT_(x)
    return DNNSUITE_TEXT(TORCH_VERSION_MAJOR) "." DNNSUITE_TEXT(TORCH_VERSION_MINOR) "." DNNSUITE_TEXT(
        TORCH_VERSION_PATCH);
}

/// New tensors on the CPU come from the pool until dnnsuite_memory_end. May be repeated.
DNNSUITE_EXPORT void dnnsuite_memory_begin() {
    static std::once_flag once;
    std::call_once(once,
                   [] { pthread_atfork([] { pool().lock(); }, [] { pool().unlock(); }, [] { pool().unlock(); }); });
    pool().keep(true);
    c10::Allocator* const now = c10::GetCPUAllocator();
    if (now == &allocator()) return;
    before = now;
    c10::SetCPUAllocator(&allocator(), kPriority);
}

/// New tensors come from the allocator that served before dnnsuite_memory_begin; what the pool keeps is unmapped, and
/// so is each of its tensors when it is freed. May be repeated. An allocator that somebody has set since is left alone.
DNNSUITE_EXPORT void dnnsuite_memory_end() {
    if (before != nullptr && c10::GetCPUAllocator() == &allocator()) c10::SetCPUAllocator(before, kPriority);
    pool().keep(false);
    pool().release();
}

DNNSUITE_EXPORT void dnnsuite_memory_release() { pool().release(); }

/// used, kept and most used bytes.
DNNSUITE_EXPORT void dnnsuite_memory_usage(std::int64_t* to) {
    const BlockPool::Usage usage = pool().usage();
    to[0] = usage.used_bytes;
    to[1] = usage.kept_bytes;
    to[2] = usage.most_used_bytes;
}
}
