// SPDX-License-Identifier: MIT
#include "gpu/activity_session.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "gpu/activity_buffers.hpp"
#include "gpu/activity_decode.hpp"
#include "host/clock.hpp"

namespace dnnsuite::gpu {

namespace {

constexpr std::size_t kReadyBuffers = 8;             // one for each thread that launches, and some on their way back
constexpr std::int64_t kClockSlack = 1'000'000'000;  // 1 s: two clocks are far further apart, or the same

void keep(std::span<std::uint8_t> records);

/// Destination of CUPTI's callbacks. They have no argument of ours, so it is the process's; and as they may come late,
/// it is never destroyed.
struct Collector {
    ActivityBuffers buffers{ActivityBuffers::kBufferBytes, ActivityBuffers::kLimitBytes, keep};
    std::atomic<decltype(cuptiActivityGetNextRecord)*> walk{nullptr};
    std::mutex mutex;  // of `decoded`; never held while CUPTI runs
    std::vector<ActivityColumns> decoded;
};

Collector& collector() {
    static Collector* const one = new Collector;
    return *one;
}

std::atomic<ActivitySession*> g_session{nullptr};
std::atomic<bool> g_forked{false};  // in a child, where CUPTI's threads and perhaps our locks' holders are gone

void keep(std::span<std::uint8_t> records) {
    Collector& all = collector();
    ActivityColumns columns = decode_activity(records, all.walk);
    const std::lock_guard lock(all.mutex);
    all.decoded.push_back(std::move(columns));
}

void CUPTIAPI requested(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
    ActivityBuffers& buffers = collector().buffers;
    *most_records = 0;  // as many as fit
    *buffer = g_forked ? nullptr : buffers.request();
    *size = *buffer == nullptr ? 0 : buffers.buffer_bytes();
}

void CUPTIAPI completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
    if (buffer != nullptr && !g_forked) {
        collector().buffers.complete(buffer, valid_bytes);
    }
}

void CUPTIAPI no_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

std::uint64_t CUPTIAPI clock() { return static_cast<std::uint64_t>(host::now_ns()); }

std::int64_t wall_clock_ns() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

/// Whether CUPTI stamps by the clock that `now` reads: the process may be stopped for any time between two readings.
template <typename Stamp, typename Now>
bool stamps_by(Stamp stamp, Now now) {
    const std::int64_t before = now();
    const auto stamped = static_cast<std::int64_t>(stamp());
    return stamped > before - kClockSlack && stamped < now() + kClockSlack;
}

/// A profile that was left open is ended, and CUPTI let go, while CUDA is still there.
void close_at_exit() {
    ActivitySession* const session = g_session;
    if (session != nullptr && !g_forked) {
        session->finish();
    }
}

/// Once per process. Registered after CUDA has been initialised, so it runs before CUDA's own handler.
void guard_exit_and_fork() {
    static std::once_flag once;
    std::call_once(once, [] {
        std::atexit(close_at_exit);
        pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
    });
}

std::vector<CUpti_ActivityKind> kinds_of(const std::vector<std::string>& tables) {
    std::vector<CUpti_ActivityKind> kinds;
    for (const std::string& table : tables) {
        if (table == "kernels") {
            kinds.push_back(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);  // KIND_KERNEL would make them wait for each other
        } else if (table == "memops") {
            kinds.insert(kinds.end(),
                         {CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET});
        } else if (table == "api") {
            kinds.insert(kinds.end(), {CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER});
        } else if (table == "overhead") {
            kinds.push_back(CUPTI_ACTIVITY_KIND_OVERHEAD);
        } else if (table == "markers") {
            kinds.insert(kinds.end(), {CUPTI_ACTIVITY_KIND_MARKER, CUPTI_ACTIVITY_KIND_MARKER_DATA});
        } else if (table == "syncs") {
            kinds.push_back(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
        } else if (table == "graphs") {
            kinds.push_back(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
        } else {
            throw InvalidArgument("no table '" + table +
                                  "': kernels, memops, api, overhead, markers, syncs and graphs can be recorded");
        }
    }
    if (kinds.empty()) {
        throw InvalidArgument("no table to record");
    }
    return kinds;
}

/// Nothing of an earlier session may be left, and buffers must lie ready.
void prepare_collector(const CuptiActivityApi& cupti) {
    Collector& all = collector();
    all.walk = cupti.get_next_record;
    all.buffers.preallocate(kReadyBuffers);
    const std::lock_guard lock(all.mutex);
    all.decoded.clear();
}

}  // namespace

ActivitySession::ActivitySession(Machine machine, const std::vector<std::string>& tables)
    : machine_(machine), kinds_(kinds_of(tables)) {
    require_mine();
    ActivitySession* none = nullptr;
    if (!g_session.compare_exchange_strong(none, this)) {
        throw Error("a profile is open in this process already: close it first");
    }
    open_ = true;
    try {
        guard_exit_and_fork();
        prepare_collector(machine_.cupti);
        subscribe();  // refused while another profiler holds CUPTI, whose clock must not be touched
        if (!has_our_clock()) {
            // Subscribing latches the base that kernels' times are mapped by: the clock comes before.
            unsubscribe();
            take_clock();
            subscribe();
        }
        configure();
        const ActivityBuffers::Counts counts = collector().buffers.counts();
        before_ = {.dropped = 0, .rejected = counts.rejected, .failed = counts.failed};
    } catch (...) {
        close();
        throw;
    }
}

ActivitySession::~ActivitySession() { close(); }

void ActivitySession::require_mine() const {
    if (g_forked) {
        throw Error(
            "this process was forked from one that profiles, and CUDA does not survive a fork: "
            "start it with multiprocessing's 'spawn'");
    }
}

void ActivitySession::subscribe() {
    std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> holder{};
    CUpti_SubscriberParams params{};
    params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    params.subscriberName = "dnnsuite";
    params.oldSubscriberName = holder.data();
    params.oldSubscriberSize = holder.size();
    const CUptiResult result = machine_.cupti.subscribe(&subscriber_, no_callback, nullptr, &params);
    if (result != CUPTI_SUCCESS) {
        subscriber_ = nullptr;
        holder.back() = '\0';
        const std::string who = holder.front() == '\0' ? "" : " (held by " + std::string(holder.data()) + ")";
        cupti_check(machine_.cupti, result, ("cuptiSubscribe_v2" + who).c_str());
    }
}

void ActivitySession::unsubscribe() noexcept {
    if (subscriber_ != nullptr) {
        machine_.cupti.unsubscribe(subscriber_);
        subscriber_ = nullptr;
    }
}

bool ActivitySession::has_our_clock() const {
    return stamps_by([this] { return timestamp(); }, host::now_ns);
}

std::uint64_t ActivitySession::timestamp() const {
    std::uint64_t now = 0;
    cupti_check(machine_.cupti, machine_.cupti.get_timestamp(&now), "cuptiGetTimestamp");
    return now;
}

/// CUPTI stamps by CLOCK_REALTIME, or by the callback that someone registered. Ours is registered once: when that is
/// repeated, later kernels get wrong times.
void ActivitySession::take_clock() {
    if (!stamps_by([this] { return timestamp(); }, wall_clock_ns)) {
        throw Unavailable("another profiler has set CUPTI's clock, and it cannot be set back", "this process",
                          "profile in a process in which torch.profiler was not used");
    }
    cupti_check(machine_.cupti, machine_.cupti.register_timestamp(clock), "cuptiActivityRegisterTimestampCallback");
    if (!has_our_clock()) {
        throw Unavailable("CUPTI did not take CLOCK_MONOTONIC for its clock", "this process",
                          "run in a new process, without another profiler");
    }
}

void ActivitySession::configure() {
    std::uint8_t zeroed = 1;
    std::size_t size = sizeof zeroed;
    cupti_check(machine_.cupti,
                machine_.cupti.set_attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &zeroed),
                "cuptiActivitySetAttribute(ZEROED_OUT_ACTIVITY_BUFFER)");
    cupti_check(machine_.cupti, machine_.cupti.register_callbacks(requested, completed),
                "cuptiActivityRegisterCallbacks");
}

void ActivitySession::enable() {
    for (; enabled_ < kinds_.size(); ++enabled_) {
        const CUpti_ActivityKind kind = kinds_[enabled_];
        cupti_check(machine_.cupti, machine_.cupti.enable(kind),
                    ("cuptiActivityEnable(" + std::to_string(static_cast<int>(kind)) + ")").c_str());
    }
    leave_out_noise();
}

void ActivitySession::leave_out_noise() {
    if (std::find(kinds_.begin(), kinds_.end(), CUPTI_ACTIVITY_KIND_RUNTIME) == kinds_.end()) {
        return;
    }
    // Calls that frameworks make by the thousand and that do nothing. If they cannot be left out they are recorded.
    for (const CUpti_CallbackId id :
         {CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020, CUPTI_RUNTIME_TRACE_CBID_cudaSetDevice_v3020,
          CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020, CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020}) {
        machine_.cupti.enable_runtime_api(id, 0);
    }
    for (const CUpti_CallbackId id :
         {CUPTI_DRIVER_TRACE_CBID_cuKernelGetAttribute, CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxGetState,
          CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent}) {
        machine_.cupti.enable_driver_api(id, 0);
    }
}

void ActivitySession::disable() noexcept {
    while (enabled_ > 0) {
        machine_.cupti.disable(kinds_[--enabled_]);
    }
}

void ActivitySession::start() {
    require_mine();
    if (!open_ || recording_) {
        throw Error(open_ ? "the profile is recording already" : "the profile is closed");
    }
    machine_.synchronize();
    try {
        enable();
    } catch (...) {
        disable();
        throw;
    }
    recording_ = true;
    opened_ns_ = closed_ns_ = host::now_ns();
}

void ActivitySession::stop() {
    require_mine();
    if (!recording_) {
        throw Error("the profile is not recording");
    }
    recording_ = false;
    try {
        machine_.synchronize();
        closed_ns_ = host::now_ns();
        cupti_check(machine_.cupti, machine_.cupti.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED),
                    "cuptiActivityFlushAll");
    } catch (...) {
        disable();
        throw;
    }
    disable();
    count_dropped();
}

void ActivitySession::count_dropped() {
    std::size_t dropped = 0;
    cupti_check(machine_.cupti, machine_.cupti.get_num_dropped_records(nullptr, 0, &dropped),
                "cuptiActivityGetNumDroppedRecords");
    dropped_ += dropped;  // CUPTI forgets its count when asked
}

ActivityColumns ActivitySession::take() {
    require_mine();
    if (recording_) {
        throw Error("the profile is recording: stop it first");
    }
    Collector& all = collector();
    std::vector<ActivityColumns> decoded;
    {
        const std::lock_guard lock(all.mutex);
        decoded.swap(all.decoded);
    }
    ActivityColumns columns;
    for (ActivityColumns& one : decoded) {
        columns.append(one);
        one = ActivityColumns();  // so that there is no second copy of all
    }
    return columns;
}

void ActivitySession::finish() noexcept {
    try {
        machine_.synchronize();  // work that still runs would write to what finalizing takes away
    } catch (...) {              // the device is gone, say
    }
    close();
    machine_.cupti.finalize();
}

void ActivitySession::close() noexcept {
    if (!open_ || g_forked) {
        return;
    }
    open_ = false;
    if (enabled_ > 0) {
        machine_.cupti.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
        disable();
    }
    recording_ = false;
    unsubscribe();
    {
        const std::lock_guard lock(collector().mutex);
        collector().decoded.clear();
    }
    g_session = nullptr;
}

ActivitySession::Losses ActivitySession::losses() const {
    require_mine();
    const ActivityBuffers::Counts now = collector().buffers.counts();
    return {.dropped = dropped_, .rejected = now.rejected - before_.rejected, .failed = now.failed - before_.failed};
}

}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
