// SPDX-License-Identifier: MIT
#include "host/spans.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "host/clock.hpp"

namespace dnnsuite::host {

namespace {

/// The open spans of one thread in one `Spans`.
struct Stack {
    std::uint64_t owner = 0;
    std::int32_t depth = 0;
    std::array<std::int64_t, Spans::kDeepest> slots;
    std::array<std::int32_t, Spans::kDeepest> names;
};

/// State of one thread. A few stacks, because a user's own spans may nest with a profiler's.
struct Thread {
    std::int32_t id = 0;
    std::array<Stack, 4> stacks;
};

// Plain data without a constructor to run or a destructor: usable in any thread at any time, also at its end.
thread_local Thread this_thread;

std::int32_t thread_id() noexcept {
    if (this_thread.id == 0) this_thread.id = static_cast<std::int32_t>(gettid());
    return this_thread.id;
}

Stack* find_stack(std::uint64_t owner) noexcept {
    for (Stack& stack : this_thread.stacks)
        if (stack.owner == owner) return &stack;
    return nullptr;
}

/// This thread's stack for `owner`; nullptr when all are in use by others.
Stack* stack_for(std::uint64_t owner) noexcept {
    if (Stack* const mine = find_stack(owner)) return mine;
    for (Stack& stack : this_thread.stacks)
        if (stack.depth == 0) {
            stack.owner = owner;
            return &stack;
        }
    return nullptr;
}

std::mutex registry_mutex;

/// Every Spans of the process, for the child of a fork. Never destroyed: a thread may outlive static objects.
std::vector<Spans*>& registry() {
    static auto* const all = new std::vector<Spans*>;
    return *all;
}

std::uint64_t next_id() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::size_t span_capacity(std::int64_t capacity) {
    if (capacity < 0) throw InvalidArgument("capacity of Spans must not be negative, as " + std::to_string(capacity));
    return static_cast<std::size_t>(capacity);
}

}  // namespace

Spans::Spans(std::int64_t capacity) : records_(span_capacity(capacity)), id_(next_id()) {
    static const int handlers = pthread_atfork([] { registry_mutex.lock(); }, [] { registry_mutex.unlock(); },
                                               [] {
                                                   forget_all_after_fork();
                                                   registry_mutex.unlock();
                                               });
    static_cast<void>(handlers);
    const std::lock_guard lock(registry_mutex);
    registry().push_back(this);
}

Spans::~Spans() {
    const std::lock_guard lock(registry_mutex);
    std::erase(registry(), this);
}

void Spans::forget_all_after_fork() noexcept {
    this_thread.id = 0;
    for (Stack& stack : this_thread.stacks) stack.slots.fill(kNotKept);
    for (Spans* const spans : registry()) {
        const Stack* const stack = find_stack(spans->id_);
        spans->forget();
        spans->open_.store(stack == nullptr ? 0 : stack->depth, std::memory_order_relaxed);
    }
}

std::int32_t Spans::add_name(const std::string& name) {
    const std::lock_guard lock(names_mutex_);
    const auto index = std::find(names_.begin(), names_.end(), name) - names_.begin();
    if (index == std::ssize(names_)) names_.push_back(name);
    return static_cast<std::int32_t>(index);
}

std::vector<std::string> Spans::names() const {
    const std::lock_guard lock(names_mutex_);
    return names_;
}

std::int64_t Spans::begin(std::int32_t name) noexcept {
    Stack* const stack = stack_for(id_);
    open_.fetch_add(1, std::memory_order_relaxed);
    if (stack == nullptr || stack->depth >= kDeepest) {
        if (stack != nullptr) ++stack->depth;
        too_deep_.fetch_add(1, std::memory_order_relaxed);
        return kNotKept;
    }
    const std::int64_t next = next_.fetch_add(1, std::memory_order_relaxed);
    const std::int64_t slot = next < capacity() ? next : kNotKept;
    const auto level = static_cast<std::size_t>(stack->depth++);
    stack->slots[level] = slot;
    stack->names[level] = name;
    if (slot != kNotKept) {
        Record& record = records_[static_cast<std::size_t>(slot)];
        record.step = step();
        record.name = name;
        record.depth = static_cast<std::int32_t>(level);
        record.thread = thread_id();
        record.t0_ns = now_ns();  // last of all: what is above is not part of the span
    }
    return slot;
}

std::int64_t Spans::end(std::int32_t name) {
    const std::int64_t now = now_ns();  // first of all: what follows is not part of the span
    Stack* const stack = find_stack(id_);
    if (stack == nullptr || stack->depth == 0) {
        // With all stacks of the thread taken by others, spans are dropped, and their ends with them.
        const auto& all = this_thread.stacks;
        if (stack == nullptr && std::all_of(all.begin(), all.end(), [](const Stack& one) { return one.depth > 0; })) {
            open_.fetch_sub(1, std::memory_order_relaxed);
            return kNotKept;
        }
        throw Error("a span ends that was never begun in this thread");
    }
    if (stack->depth > kDeepest) {
        --stack->depth;
        open_.fetch_sub(1, std::memory_order_relaxed);
        return kNotKept;
    }
    const auto level = static_cast<std::size_t>(stack->depth - 1);
    if (stack->names[level] != name) {
        const std::vector<std::string> known = names();
        throw Error("the span '" + known.at(static_cast<std::size_t>(name)) + "' ends, but '" +
                    known.at(static_cast<std::size_t>(stack->names[level])) + "' is open inside it");
    }
    --stack->depth;
    open_.fetch_sub(1, std::memory_order_relaxed);
    const std::int64_t slot = stack->slots[level];
    if (slot != kNotKept)
        std::atomic_ref(records_[static_cast<std::size_t>(slot)].t1_ns).store(now, std::memory_order_release);
    return slot;
}

std::int64_t Spans::count() const noexcept { return std::min(next_.load(std::memory_order_relaxed), capacity()); }

std::int64_t Spans::dropped() const noexcept {
    return std::max<std::int64_t>(next_.load(std::memory_order_relaxed) - capacity(), 0) +
           too_deep_.load(std::memory_order_relaxed);
}

Spans::Columns Spans::columns() const {
    Columns all;
    const std::int64_t kept = count();
    for (std::int64_t slot = 0; slot < kept; ++slot) {
        const Record& record = records_[static_cast<std::size_t>(slot)];
        auto& end = const_cast<std::int64_t&>(record.t1_ns);  // atomic_ref<const> is C++26
        const std::int64_t t1_ns = std::atomic_ref(end).load(std::memory_order_acquire);
        if (t1_ns == 0) continue;
        all.slot.push_back(slot);
        all.name.push_back(record.name);
        all.step.push_back(record.step);
        all.depth.push_back(record.depth);
        all.thread.push_back(record.thread);
        all.t0_ns.push_back(record.t0_ns);
        all.t1_ns.push_back(t1_ns);
    }
    return all;
}

void Spans::clear() {
    if (const std::int64_t still = open(); still > 0)
        throw Error("spans cannot be cleared while " + std::to_string(still) + " of them are open");
    forget();
}

void Spans::forget() noexcept {
    const std::int64_t used = count();
    for (std::int64_t slot = 0; slot < used; ++slot) records_[static_cast<std::size_t>(slot)].t1_ns = 0;
    next_.store(0, std::memory_order_relaxed);
    too_deep_.store(0, std::memory_order_relaxed);
}

}  // namespace dnnsuite::host
