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

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>

#include "host/block_pool.hpp"

namespace {

using dnnsuite::host::BlockPool;

BlockPool& pool() {
    static BlockPool* const shared = new BlockPool;  // outlives every tensor
    return *shared;
}

/// Memory for a request to come of so many bytes, the one after `request` others of that size.
struct Offer {
    static constexpr std::int64_t kNoted = 8;  // requests whose answers are known afterwards

    void* memory = nullptr;
    std::size_t bytes = 0;
    std::int64_t request = 0, seen = 0;
    std::array<const void*, kNoted> answers{};
};

/// The memory that this thread's caller offers. A convolution of torch's allocates what it returns, and other tensors of
/// the same size before it perhaps, which are gone when it returns; so an offer is memory of the caller's that nobody
/// frees.
struct Offers {
    std::array<Offer, 2> all;
    int open = 0;

    /// The memory for this request, or null.
    void* answer(std::size_t size) {
        for (Offer& offer : all)
            if (offer.memory != nullptr && offer.bytes == size && offer.seen == offer.request) return offer.memory;
        return nullptr;
    }
    void note(std::size_t size, const void* answered) {
        for (Offer& offer : all) {
            if (offer.memory == nullptr || offer.bytes != size) continue;
            if (offer.seen < Offer::kNoted) offer.answers[static_cast<std::size_t>(offer.seen)] = answered;
            ++offer.seen;
        }
    }
    bool holds(const void* pointer) const {
        for (const Offer& offer : all)
            if (offer.memory == pointer && pointer != nullptr) return true;
        return false;
    }
};
thread_local Offers offers;

void leave(void*) {}

void give(void* pointer) {
    if (offers.open > 0 && offers.holds(pointer)) return;
    c10::profiledCPUMemoryReporter().Delete(pointer);
    pool().give(pointer);
}

struct PoolAllocator final : c10::Allocator {
    c10::DataPtr allocate(std::size_t size) override {
        const c10::Device device(c10::DeviceType::CPU);
        if (size == 0) return {nullptr, nullptr, &give, device};
        if (offers.open > 0) {
            if (void* const offered = offers.answer(size)) {
                offers.note(size, offered);
                return {offered, offered, &leave, device};
            }
        }
        void* pointer = pool().take(size);
        if (pointer == nullptr) {
            c10::profiledCPUMemoryReporter().OutOfMemory(size);
            C10_THROW_ERROR(OutOfMemoryError, "dnnsuite: can't allocate memory: a tensor of " + std::to_string(size) +
                                                  " bytes on the CPU: train fewer models at once, or smaller batches");
        }
        c10::profiledCPUMemoryReporter().New(pointer, size);
        if (offers.open > 0) offers.note(size, pointer);
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

/// Tensors of other sizes follow: those that are smaller than what is kept now may have it.
DNNSUITE_EXPORT void dnnsuite_memory_expect_other_sizes() { pool().expect_other_sizes(); }

DNNSUITE_EXPORT void dnnsuite_memory_release() { pool().release(); }

/// Offers memory for the request of so many bytes that this thread makes after `request` others of that size, until
/// dnnsuite_memory_close. Two offers can be open, in slots 0 and 1.
DNNSUITE_EXPORT void dnnsuite_memory_offer(std::int64_t slot, void* memory, std::int64_t bytes, std::int64_t request) {
    Offer& offer = offers.all[static_cast<std::size_t>(slot)];
    offers.open += offer.memory == nullptr;
    offer = {memory, static_cast<std::size_t>(bytes), request, 0, {}};
}

/// Takes the offer back. Returns which request of its size was answered by what lies at `result`; -1 if none was.
DNNSUITE_EXPORT std::int64_t dnnsuite_memory_close(std::int64_t slot, const void* result) {
    Offer& offer = offers.all[static_cast<std::size_t>(slot)];
    std::int64_t found = std::min(offer.seen, Offer::kNoted) - 1;  // the last: memory comes again
    while (found >= 0 && offer.answers[static_cast<std::size_t>(found)] != result) --found;
    offer.memory = nullptr;
    --offers.open;
    return found;
}

/// used, kept and most used bytes.
DNNSUITE_EXPORT void dnnsuite_memory_usage(std::int64_t* to) {
    const BlockPool::Usage usage = pool().usage();
    to[0] = usage.used_bytes;
    to[1] = usage.kept_bytes;
    to[2] = usage.most_used_bytes;
}
}
