// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

namespace dnnsuite::gpu {

/// Ranges for NVIDIA's tools, in the domain "dnnsuite", with registered strings. They cost about a nanosecond when no
/// tool is attached. NVTX is headers alone; a build without them throws Unavailable from `nvtx_name`.

/// A name that the tool has been told; registered once, valid for the life of the process.
using NvtxName = const void*;

/// Registers a name, or finds it. Takes a lock: not for the hot path.
NvtxName nvtx_name(const std::string& name);

/// A range of this thread begins, inside those that are open; `step` is its payload.
void nvtx_push(NvtxName name, std::int64_t step) noexcept;
/// The innermost range of this thread ends.
void nvtx_pop() noexcept;
/// An instant.
void nvtx_mark(NvtxName name, std::int64_t step) noexcept;
/// A range of the process: it may end in another thread. Returns what `nvtx_stop` wants.
std::uint64_t nvtx_start(NvtxName name, std::int64_t step) noexcept;
void nvtx_stop(std::uint64_t range) noexcept;

}  // namespace dnnsuite::gpu
