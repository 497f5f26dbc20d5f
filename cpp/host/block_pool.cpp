// SPDX-License-Identifier: MIT
#include "host/block_pool.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace dnnsuite::host {

namespace {

std::size_t whole_pages(std::size_t size) {
    static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));  // 64 KiB on some of Arm's
    return (size + page - 1) / page * page;
}

/// Fresh pages; large ones where a block holds one for certain, which costs a tenth of the page faults' time.
void* mapped(std::size_t bytes) {
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    if (bytes >= BlockPool::kLargePages)
        madvise(base, bytes, MADV_HUGEPAGE);  // a system without them serves small ones
    return base;
}

}  // namespace

void* BlockPool::memory_of(void* base, const Header& header) noexcept {
    static_assert(sizeof(Header) <= kAlignment);
    std::memcpy(base, &header, sizeof(header));
    return static_cast<char*>(base) + kAlignment;
}

void* BlockPool::take(std::size_t size) noexcept {
    if (size > SIZE_MAX / 2) return nullptr;
    const std::size_t whole = size + kAlignment;
    if (size < kLeast) {
        void* base = std::aligned_alloc(kAlignment, (whole + kAlignment - 1) / kAlignment * kAlignment);
        return base == nullptr ? nullptr : memory_of(base, {0, 0});
    }
    const std::lock_guard<std::mutex> guard(mutex_);
    Header block{whole_pages(whole), era_};
    const std::size_t bytes = block.bytes;
    void* base = reused(block, bytes + bytes / 16);
    if (base == nullptr) base = reused(block, std::min(bytes * kSpare, kLargePages - 1), true);
    if (base == nullptr && !has_room_for(bytes)) base = reused(block, bytes * kLarger);
    if (base == nullptr) {
        shrink(bytes);
        base = mapped(bytes);
        if (base == nullptr && !kept_.empty()) {  // the system has no more: what is kept is of other sizes
            while (!kept_.empty()) drop(kept_.begin());
            base = mapped(bytes);
        }
        if (base == nullptr) return nullptr;
    }
    used_ += block.bytes;
    most_ = std::max(most_, used_);
    return memory_of(base, block);
}

void BlockPool::give(void* pointer) noexcept {
    if (pointer == nullptr) return;
    void* base = static_cast<char*>(pointer) - kAlignment;
    Header header{};
    std::memcpy(&header, base, sizeof(header));
    if (header.bytes == 0) return std::free(base);
    const std::lock_guard<std::mutex> guard(mutex_);
    used_ -= header.bytes;
    if (!keeping_) {
        munmap(base, header.bytes);
        return;
    }
    try {
        kept_.push_back({base, header.bytes, header.era});
        by_size_[header.bytes].push_back(std::prev(kept_.end()));
        kept_bytes_ += header.bytes;
    } catch (...) {  // no room for the note that it is there
        if (!kept_.empty() && kept_.back().base == base) kept_.pop_back();
        munmap(base, header.bytes);
    }
}

void BlockPool::expect_other_sizes() noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    ++era_;
}

void BlockPool::release() noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    while (!kept_.empty()) drop(kept_.begin());
    most_ = used_;
}

void BlockPool::keep(bool on) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    keeping_ = on;
}

BlockPool::Usage BlockPool::usage() const noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    return {static_cast<std::int64_t>(used_), static_cast<std::int64_t>(kept_bytes_), static_cast<std::int64_t>(most_)};
}

/// The block that was given back last, for its memory may still be in a cache, of the least size that will do and is no
/// more than `most`; with `spare` only one from before other sizes began. `asked` becomes what it has.
void* BlockPool::reused(Header& asked, std::size_t most, bool spare) noexcept {
    for (auto found = by_size_.lower_bound(asked.bytes); found != by_size_.end() && found->first <= most; ++found) {
        auto& same = found->second;
        const auto fits = [&](Kept::iterator block) { return !spare || block->era != era_; };
        const auto last = std::find_if(same.rbegin(), same.rend(), fits);
        if (last == same.rend()) continue;
        const Kept::iterator block = *last;
        void* const base = block->base;
        asked = {block->bytes, block->era};
        same.erase(std::next(last).base());
        kept_bytes_ -= block->bytes;
        kept_.erase(block);
        return base;
    }
    return nullptr;
}

/// True if `bytes` more can be mapped beside all that is kept.
bool BlockPool::has_room_for(std::size_t bytes) const noexcept {
    const std::size_t most = std::max(most_, used_ + bytes);
    const std::size_t limit = std::max(static_cast<std::size_t>(kSlack * static_cast<double>(most)), most + kFree);
    return used_ + kept_bytes_ + bytes <= limit;
}

/// Makes room for `bytes` more, as far as what is in use allows for it.
void BlockPool::shrink(std::size_t bytes) noexcept {
    while (!kept_.empty() && !has_room_for(bytes)) drop(kept_.begin());
}

void BlockPool::drop(Kept::iterator block) noexcept {
    auto& same = by_size_[block->bytes];
    same.erase(std::find(same.begin(), same.end(), block));
    kept_bytes_ -= block->bytes;
    if (same.empty()) by_size_.erase(block->bytes);
    munmap(block->base, block->bytes);
    kept_.erase(block);
}

}  // namespace dnnsuite::host
