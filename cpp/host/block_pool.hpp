// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <vector>

namespace dnnsuite::host {

/// Memory of large sizes that come again and again, as a training step's do: a block that was given back is handed out
/// again for the next request of its size, or of a sixteenth less, with its pages in place.
///
/// malloc instead costs a page fault for every 4 KiB of each step, or, told to keep its memory, splits it: an
/// aligned block of glibc before 2.38 does not fit where one of the same size was.
///
/// No more is kept than brings the whole to kSlack times the most that was in use at once, or to kFree more than it: small
/// steps and the validation between them have sizes of their own, and would unmap each other's blocks at every turn. At
/// that limit a request takes a block of up to kLarger times its size; only if there is none, what was unused for longest
/// is unmapped: a step that needs a little more than the limit would lose each block shortly before it needs it again.
///
/// Where other sizes begin, as with another shape of batch, blocks from before serve smaller requests, too, down to
/// 1 / kSpare of their size: their pages are there, and a step of the old sizes does not run at the same time. Blocks of
/// large pages, which cost little to map and would waste more, are left out.
/// All functions may be called from any thread.
class BlockPool {
  public:
    static constexpr std::size_t kLeast = std::size_t{1} << 16;  // smaller requests are malloc's
    static constexpr std::size_t kAlignment = 64;
    static constexpr double kSlack = 1.1;
    static constexpr std::size_t kFree = std::size_t{64} << 20;
    static constexpr std::size_t kLarger = 2, kSpare = 8;
    static constexpr std::size_t kLargePages = std::size_t{4} << 20;  // blocks from here on have them

    struct Usage {
        std::int64_t used_bytes, kept_bytes, most_used_bytes;
    };

    BlockPool() = default;
    BlockPool(const BlockPool&) = delete;
    BlockPool& operator=(const BlockPool&) = delete;

    /// At least `size` bytes, aligned; null if there is no memory.
    void* take(std::size_t size) noexcept;
    /// Gives back what `take` gave; null is nothing.
    void give(void* pointer) noexcept;
    /// Lets the blocks that there are now serve smaller requests, too, where none of about the size is kept.
    void expect_other_sizes() noexcept;
    /// Unmaps all that is kept.
    void release() noexcept;
    /// True if blocks that are given back are kept for the next request (the default) or unmapped at once.
    void keep(bool on) noexcept;
    Usage usage() const noexcept;

    /// Around a fork, so that the child's pool is in one piece.
    void lock() noexcept { mutex_.lock(); }
    void unlock() noexcept { mutex_.unlock(); }

  private:
    /// Lies before each block's memory.
    struct Header {
        std::size_t bytes;  // 0 for one of malloc's
        std::uint64_t era;
    };
    struct Block {
        void* base;
        std::size_t bytes;
        std::uint64_t era;  // of sizes, in which it was mapped
    };
    using Kept = std::list<Block>;  // what was given back first is in front

    static void* memory_of(void* base, const Header& header) noexcept;
    void* reused(Header& asked, std::size_t most, bool spare = false) noexcept;
    bool has_room_for(std::size_t bytes) const noexcept;
    void shrink(std::size_t bytes) noexcept;
    void drop(Kept::iterator block) noexcept;

    mutable std::mutex mutex_;
    Kept kept_;
    std::map<std::size_t, std::vector<Kept::iterator>> by_size_;
    bool keeping_ = true;
    std::uint64_t era_ = 0;
    std::size_t used_ = 0, kept_bytes_ = 0, most_ = 0;
};

}  // namespace dnnsuite::host
