// SPDX-License-Identifier: MIT
#include "host/block_pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

namespace dnnsuite::host {

namespace {

/// Lies before each block's memory. `bytes` is 0 for one of malloc's.
struct Header {
    std::size_t bytes;
};
static_assert(sizeof(Header) <= BlockPool::kAlignment);

void* memory_of(void* base, std::size_t bytes) {
    const Header header{bytes};
    std::memcpy(base, &header, sizeof(header));
    return static_cast<char*>(base) + BlockPool::kAlignment;
}

void* mapped(std::size_t bytes) {
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return base == MAP_FAILED ? nullptr : base;
}

}  // namespace

std::size_t BlockPool::rounded(std::size_t size) noexcept {
    const std::size_t least_step = 4096, step = std::max(least_step, std::bit_floor(size) >> 4);
    return (size + step - 1) / step * step;
}

void* BlockPool::take(std::size_t size) noexcept {
    if (size > SIZE_MAX / 2) return nullptr;
    const std::size_t whole = size + kAlignment;
    if (size < kLeast) {
        void* base = std::aligned_alloc(kAlignment, (whole + kAlignment - 1) / kAlignment * kAlignment);
        return base == nullptr ? nullptr : memory_of(base, 0);
    }
    const std::size_t bytes = rounded(whole);
    const std::lock_guard<std::mutex> guard(mutex_);
    void* base = reused(bytes);
    if (base == nullptr) {
        shrink(bytes);
        base = mapped(bytes);
        if (base == nullptr && !kept_.empty()) {  // the system has no more: what is kept is of other sizes
            while (!kept_.empty()) drop(kept_.begin());
            base = mapped(bytes);
        }
        if (base == nullptr) return nullptr;
    }
    used_ += bytes;
    most_ = std::max(most_, used_);
    return memory_of(base, bytes);
}

void BlockPool::give(void* pointer) noexcept {
    if (pointer == nullptr) return;
    void* base = static_cast<char*>(pointer) - kAlignment;
    Header header{};
    std::memcpy(&header, base, sizeof(header));
    if (header.bytes == 0) return std::free(base);
    const std::lock_guard<std::mutex> guard(mutex_);
    used_ -= header.bytes;
    try {
        kept_.push_back({base, header.bytes});
        by_size_[header.bytes].push_back(std::prev(kept_.end()));
        kept_bytes_ += header.bytes;
    } catch (...) {  // no room for the note that it is there
        if (!kept_.empty() && kept_.back().base == base) kept_.pop_back();
        munmap(base, header.bytes);
    }
}

void BlockPool::release() noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    while (!kept_.empty()) drop(kept_.begin());
    most_ = used_;
}

BlockPool::Usage BlockPool::usage() const noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    return {static_cast<std::int64_t>(used_), static_cast<std::int64_t>(kept_bytes_), static_cast<std::int64_t>(most_)};
}

/// The block of this size that was given back last: its memory may still be in a cache.
void* BlockPool::reused(std::size_t bytes) noexcept {
    const auto found = by_size_.find(bytes);
    if (found == by_size_.end() || found->second.empty()) return nullptr;
    const auto block = found->second.back();
    found->second.pop_back();
    void* base = block->base;
    kept_.erase(block);
    kept_bytes_ -= bytes;
    return base;
}

/// Makes room for `bytes` more, as far as what is in use allows for it.
void BlockPool::shrink(std::size_t bytes) noexcept {
    const auto limit = static_cast<std::size_t>(kSlack * static_cast<double>(std::max(most_, used_ + bytes)));
    while (!kept_.empty() && used_ + kept_bytes_ + bytes > limit) drop(kept_.begin());
}

void BlockPool::drop(Kept::iterator block) noexcept {
    auto& same = by_size_[block->bytes];
    same.erase(std::find(same.begin(), same.end(), block));
    kept_bytes_ -= block->bytes;
    munmap(block->base, block->bytes);
    kept_.erase(block);
}

}  // namespace dnnsuite::host
