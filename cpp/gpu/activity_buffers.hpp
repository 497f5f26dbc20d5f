// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace dnnsuite::gpu {

/// The memory into which a tracer writes its records: buffers of one size that go round. All functions may be called
/// by several threads at once.
///
/// The tracer asks on the thread that launches kernels, so the buffers are made, touched and zeroed beforehand, and
/// zeroed again when they come back rather than when they go out.
class ActivityBuffers {
  public:
    static constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
    static constexpr std::size_t kLimitBytes = std::size_t{128} << 20;

    /// Sees the records of a buffer that came back, on the thread that brought it; several at once.
    using Consumer = std::function<void(std::span<std::uint8_t>)>;

    struct Counts {
        std::size_t made;      ///< buffers in memory
        std::size_t out;       ///< of these, with the tracer
        std::size_t returned;  ///< came back, since the beginning
        std::size_t rejected;  ///< requests refused at the limit: records are lost
        std::size_t failed;    ///< came back, but the consumer threw: records are lost
        std::size_t foreign;   ///< came back, but were never handed out
    };

    /// Throws InvalidArgument when `limit_bytes` has not room for one buffer, or `buffer_bytes` is not a multiple of 8.
    ActivityBuffers(std::size_t buffer_bytes, std::size_t limit_bytes, Consumer consumer);

    /// Makes buffers until `count` lie ready, as far as the limit allows.
    void preallocate(std::size_t count);

    /// A zeroed buffer of `buffer_bytes`, aligned to 8; nullptr at the limit or without memory.
    std::uint8_t* request() noexcept;

    /// Takes a buffer back, of which the first `valid_bytes` hold records.
    void complete(std::uint8_t* buffer, std::size_t valid_bytes) noexcept;

    std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }
    Counts counts() const;

  private:
    using Buffer = std::unique_ptr<std::uint64_t[]>;  // 64-bit words, for the alignment

    Buffer make() const;
    bool room() const noexcept { return free_.size() + out_.size() < limit_buffers_; }
    Buffer take_back(const std::uint8_t* buffer);
    void keep(Buffer buffer) noexcept;

    const std::size_t buffer_bytes_;
    const std::size_t limit_buffers_;
    const Consumer consumer_;
    mutable std::mutex mutex_;  // never held while the consumer, or the tracer, runs
    std::vector<Buffer> free_;
    std::vector<Buffer> out_;
    std::size_t returned_ = 0;
    std::size_t rejected_ = 0;
    std::size_t failed_ = 0;
    std::size_t foreign_ = 0;
};

}  // namespace dnnsuite::gpu
