// SPDX-License-Identifier: MIT
#include "gpu/cuda_events.hpp"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "gpu/cuda_runtime.hpp"

namespace dnnsuite::gpu {

EventFunctions EventFunctions::of_the_runtime() {
    const Library& runtime = cuda_runtime();
    return {
        .create = runtime.function<int(Event*)>("cudaEventCreate"),
        .destroy = runtime.function<int(Event)>("cudaEventDestroy"),
        .record = runtime.function<int(Event, Stream)>("cudaEventRecord"),
        .query = runtime.function<int(Event)>("cudaEventQuery"),
        .synchronize = runtime.function<int(Event)>("cudaEventSynchronize"),
        .elapsed = runtime.function<int(float*, Event, Event)>("cudaEventElapsedTime"),
    };
}

CudaEvents::CudaEvents(const EventFunctions& functions, std::int64_t pairs)
    : functions_(functions), process_(getpid()) {
    if (pairs < 1) throw InvalidArgument("a pool of CUDA events needs at least 1 pair, not " + std::to_string(pairs));
    const auto count = static_cast<std::size_t>(pairs);
    free_.reserve(count);
    begun_.reserve(count);
    ended_.reserve(count);
    resolved_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        Pair pair;
        int status = functions_.create(&pair.first);
        if (status == 0) {
            status = functions_.create(&pair.second);
            if (status != 0) functions_.destroy(pair.first);
        }
        if (status != 0) {
            destroy();
            throw Unavailable("CUDA makes no events: status " + std::to_string(status) + " after " + std::to_string(i) +
                              " pairs");
        }
        free_.push_back(pair);
    }
}

CudaEvents::~CudaEvents() { destroy(); }

void CudaEvents::destroy() noexcept {
    if (getpid() != process_) return;
    for (const auto* const pairs : {&free_, &begun_, &ended_})
        for (const Pair& pair : *pairs) {
            functions_.destroy(pair.first);
            functions_.destroy(pair.second);
        }
}

void CudaEvents::set_stream(std::uintptr_t stream) noexcept {
    const std::lock_guard lock(mutex_);
    stream_ = reinterpret_cast<EventFunctions::Stream>(stream);
}

void CudaEvents::drop(int status) noexcept {
    ++dropped_;
    if (status != 0) last_error_ = status;
}

void CudaEvents::begin(std::int64_t key) noexcept {
    if (key < 0 || getpid() != process_) return;
    const std::lock_guard lock(mutex_);
    if (free_.empty()) collect_locked();
    if (free_.empty()) return drop(0);
    Pair pair = free_.back();
    if (const int status = functions_.record(pair.first, stream_); status != 0) return drop(status);
    free_.pop_back();
    pair.key = key;
    begun_.push_back(pair);
}

void CudaEvents::end(std::int64_t key) noexcept {
    if (key < 0 || getpid() != process_) return;
    const std::lock_guard lock(mutex_);
    // From the back: what ends was mostly begun last.
    const auto found =
        std::find_if(begun_.rbegin(), begun_.rend(), [key](const Pair& pair) { return pair.key == key; });
    if (found == begun_.rend()) return;
    const Pair pair = *found;
    begun_.erase(std::next(found).base());
    if (const int status = functions_.record(pair.second, stream_); status != 0) {
        free_.push_back(pair);
        return drop(status);
    }
    ended_.push_back(pair);
}

void CudaEvents::collect_locked() noexcept {
    std::size_t over = 0;
    for (; over < ended_.size(); ++over) {
        const Pair& pair = ended_[over];
        int status = functions_.query(pair.second);
        if (status == EventFunctions::kNotReady) break;
        float milliseconds = 0;
        if (status == 0) status = functions_.elapsed(&milliseconds, pair.first, pair.second);
        if (status == 0)
            resolved_.push_back({pair.key, static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6 + 0.5)});
        else
            drop(status);
        free_.push_back(pair);
    }
    ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(over));
}

void CudaEvents::collect() noexcept {
    if (getpid() != process_) return;
    const std::lock_guard lock(mutex_);
    collect_locked();
}

void CudaEvents::finish() {
    if (getpid() != process_) return;
    const std::lock_guard lock(mutex_);
    for (const Pair& pair : ended_)  // streams may differ: the last to be recorded need not be the last to be over
        if (const int status = functions_.synchronize(pair.second); status != 0) last_error_ = status;
    collect_locked();
}

std::vector<CudaEvents::Resolved> CudaEvents::take() {
    std::vector<Resolved> fresh;
    const std::lock_guard lock(mutex_);
    fresh.reserve(free_.capacity());
    std::swap(fresh, resolved_);
    return fresh;
}

std::int64_t CudaEvents::pending() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(ended_.size());
}

std::int64_t CudaEvents::dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
}

int CudaEvents::last_error() const {
    const std::lock_guard lock(mutex_);
    return last_error_;
}

}  // namespace dnnsuite::gpu
