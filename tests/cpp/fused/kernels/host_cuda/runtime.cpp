// SPDX-License-Identifier: MIT
#include "fused/kernels/host_cuda/runtime.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace host_cuda {

bool descending = false, in_kernel = false;
int64_t launches = 0;
void (*after_block)() = nullptr;

namespace {

constexpr size_t kStackBytes = 512 * 1024;  // a kernel's arguments are up to 32 KiB, and some compilers copy them often

constexpr unsigned char kPoison = 0xFF;  // a NaN of them

enum class State { kReady, kAtWarp, kAtBlock, kDone };

/// A fibre runs body after body: it is made once, and changed to and from by jumps, which cost no system call.
struct Thread {
    State state = State::kReady;
    dim3 place;
    unsigned exchanges = 0;
    std::unique_ptr<char[]> stack;
    ucontext_t start;
    jmp_buf here;
};

/// The running block. Values are exchanged by two boxes in turn: a lane is never two exchanges ahead of another.
struct Block {
    std::vector<std::unique_ptr<Thread>> threads;
    std::vector<uint64_t> boxes[2];
    jmp_buf scheduler;
    size_t current = 0, count = 0;
    const std::function<void()>* body = nullptr;
    size_t shared_bytes = 0;
    std::vector<unsigned char> shared = std::vector<unsigned char>(kSharedBytes + 256);

    Thread& self() { return *threads[current]; }
};

Block& block() {
    static Block it;
    return it;
}

cudaError_t last_error = cudaSuccess;

void change(jmp_buf& from, jmp_buf& to) {
    if (_setjmp(from) == 0) _longjmp(to, 1);
}

void wait(State state) {
    Block& b = block();
    b.self().state = state;
    change(b.self().here, b.scheduler);
}

void enter() {
    for (;;) {
        (*block().body)();
        wait(State::kDone);
    }
}

void resume(size_t index) {
    Block& b = block();
    b.current = index;
    Thread& thread = b.self();
    threadIdx = thread.place;
    if (thread.stack != nullptr) return change(b.scheduler, thread.here);
    thread.stack.reset(new char[kStackBytes]);
    getcontext(&thread.start);
    thread.start.uc_stack.ss_sp = thread.stack.get();
    thread.start.uc_stack.ss_size = kStackBytes;
    makecontext(&thread.start, enter, 0);
    if (_setjmp(b.scheduler) == 0) setcontext(&thread.start);
}

void prepare(size_t index) {
    const unsigned i = static_cast<unsigned>(index);
    Thread& thread = *block().threads[index];
    thread.place = dim3(i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y);
    thread.state = State::kReady;
    thread.exchanges = 0;
}

/// Lets those go on that are all at the same barrier: a warp with all its lanes, or all that have not returned.
bool release() {
    Block& b = block();
    bool any = false, all = true;
    for (size_t first = 0; first < b.count; first += kLanes) {
        size_t waiting = 0;
        for (size_t i = first; i < first + kLanes; ++i) waiting += b.threads[i]->state == State::kAtWarp ? 1 : 0;
        for (size_t i = first; i < first + kLanes; ++i) {
            const State state = b.threads[i]->state;
            if (waiting == kLanes) b.threads[i]->state = State::kReady;
            all = all && (state == State::kAtBlock || state == State::kDone);
        }
        any = any || waiting == kLanes;
    }
    if (!all) return any;
    for (size_t i = 0; i < b.count; ++i) {
        if (b.threads[i]->state != State::kAtBlock) continue;
        b.threads[i]->state = State::kReady;
        any = true;
    }
    return any;
}

void run_block() {
    Block& b = block();
    std::fill(b.shared.begin(), b.shared.end(), kPoison);
    for (size_t i = 0; i < b.count; ++i) prepare(i);
    for (;;) {
        for (size_t i = 0; i < b.count; ++i) {
            const size_t index = descending ? b.count - 1 - i : i;
            if (b.threads[index]->state != State::kReady) continue;
            in_kernel = true;
            resume(index);
            in_kernel = false;
        }
        bool done = true;
        for (size_t i = 0; i < b.count; ++i) done = done && b.threads[i]->state == State::kDone;
        if (done) break;
        if (release()) continue;
        b.threads.clear();  // these never come back
        throw std::logic_error("a CUDA block waits for threads that are elsewhere or have returned");
    }
    if (after_block != nullptr) after_block();
    const auto beyond = b.shared.begin() + static_cast<std::ptrdiff_t>(b.shared_bytes);
    if (std::any_of(beyond, b.shared.end(), [](unsigned char byte) { return byte != kPoison; }))
        throw std::logic_error("a CUDA block writes beyond its dynamic shared memory");
}

bool refused(const cudaLaunchConfig_t& config) {
    const dim3 &g = config.gridDim, &t = config.blockDim;
    const uint64_t threads = static_cast<uint64_t>(t.x) * t.y * t.z;
    return g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7FFFFFFFu || g.y > 65535 || g.z > 65535 || threads == 0 ||
           threads > 1024 || threads % kLanes != 0 || config.dynamicSmemBytes > kSharedBytes;
}

}  // namespace

void wait_for_block() { wait(State::kAtBlock); }
void wait_for_warp() { wait(State::kAtWarp); }

uint64_t exchange(uint64_t value, unsigned mask) {
    Block& b = block();
    const size_t self = b.current;
    std::vector<uint64_t>& box = b.boxes[b.self().exchanges++ % 2];
    box[self] = value;
    wait(State::kAtWarp);
    return box[self ^ mask];
}

void* dynamic_shared() { return block().shared.data(); }

cudaError_t run(const cudaLaunchConfig_t& config, const std::function<void()>& body) {
    if (refused(config)) return last_error = cudaErrorInvalidConfiguration;
    Block& b = block();
    ++launches;
    gridDim = config.gridDim;
    blockDim = config.blockDim;
    b.count = static_cast<size_t>(blockDim.x) * blockDim.y * blockDim.z;
    b.body = &body;
    b.shared_bytes = config.dynamicSmemBytes;
    while (b.threads.size() < b.count) b.threads.push_back(std::make_unique<Thread>());
    for (std::vector<uint64_t>& box : b.boxes) box.resize(b.threads.size());
    for (unsigned z = 0; z < gridDim.z; ++z) {
        for (unsigned y = 0; y < gridDim.y; ++y) {
            for (unsigned x = 0; x < gridDim.x; ++x) {
                blockIdx = dim3(x, y, z);
                run_block();
            }
        }
    }
    return cudaSuccess;
}

}  // namespace host_cuda

cudaError_t cudaGetLastError() {
    const cudaError_t error = host_cuda::last_error;
    host_cuda::last_error = cudaSuccess;
    return error;
}
