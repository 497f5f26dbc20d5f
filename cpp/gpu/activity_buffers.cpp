// SPDX-License-Identifier: MIT
#include "gpu/activity_buffers.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace dnnsuite::gpu {

ActivityBuffers::ActivityBuffers(std::size_t buffer_bytes, std::size_t limit_bytes, Consumer consumer)
    : buffer_bytes_(buffer_bytes), limit_buffers_(buffer_bytes == 0 ? 0 : limit_bytes / buffer_bytes),
      consumer_(std::move(consumer)) {
    if (buffer_bytes == 0 || buffer_bytes % sizeof(std::uint64_t) != 0) {
        throw InvalidArgument("buffer_bytes=" + std::to_string(buffer_bytes) + " is not a positive multiple of 8");
    }
    if (limit_buffers_ == 0) {
        throw InvalidArgument("limit_bytes=" + std::to_string(limit_bytes) + " has no room for a buffer of " +
                              std::to_string(buffer_bytes));
    }
    free_.reserve(limit_buffers_);  // so that nothing below can fail for want of memory
    out_.reserve(limit_buffers_);
}

ActivityBuffers::Buffer ActivityBuffers::make() const {
    return std::make_unique<std::uint64_t[]>(buffer_bytes_ / sizeof(std::uint64_t));  // zeroed, hence touched
}

void ActivityBuffers::preallocate(std::size_t count) {
    const std::lock_guard lock(mutex_);
    while (free_.size() < count && room()) {
        free_.push_back(make());
    }
}

std::uint8_t* ActivityBuffers::request() noexcept {
    const std::lock_guard lock(mutex_);
    try {
        if (free_.empty() && room()) {
            free_.push_back(make());
        }
    } catch (const std::bad_alloc&) {  // counted below
    }
    if (free_.empty()) {
        ++rejected_;
        return nullptr;
    }
    out_.push_back(std::move(free_.back()));
    free_.pop_back();
    return reinterpret_cast<std::uint8_t*>(out_.back().get());
}

ActivityBuffers::Buffer ActivityBuffers::take_back(const std::uint8_t* buffer) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(out_.begin(), out_.end(), [buffer](const Buffer& one) {
        return reinterpret_cast<const std::uint8_t*>(one.get()) == buffer;
    });
    if (found == out_.end()) {
        ++foreign_;
        return nullptr;
    }
    // It stays among those that are out, as an empty place, so that the limit counts it until it is back.
    return std::move(*found);
}

void ActivityBuffers::keep(Buffer buffer) noexcept {
    const std::lock_guard lock(mutex_);
    out_.erase(std::find(out_.begin(), out_.end(), nullptr));
    free_.push_back(std::move(buffer));
    ++returned_;
}

void ActivityBuffers::complete(std::uint8_t* buffer, std::size_t valid_bytes) noexcept {
    Buffer mine = take_back(buffer);
    if (mine == nullptr) {
        return;
    }
    const std::size_t used = std::min(valid_bytes, buffer_bytes_);
    try {
        consumer_({buffer, used});
    } catch (...) {  // a callback of C has nowhere to throw to
        const std::lock_guard lock(mutex_);
        ++failed_;
    }
    std::memset(buffer, 0, buffer_bytes_);
    keep(std::move(mine));
}

ActivityBuffers::Counts ActivityBuffers::counts() const {
    const std::lock_guard lock(mutex_);
    return {.made = free_.size() + out_.size(),
            .out = out_.size(),
            .returned = returned_,
            .rejected = rejected_,
            .failed = failed_,
            .foreign = foreign_};
}

}  // namespace dnnsuite::gpu
