// SPDX-License-Identifier: MIT
#pragma once

namespace dnnsuite::host {

/// Keeps freed memory in the process, so that buffers as large as a training step's are handed out again
/// instead of being mapped and page-faulted anew in every step: no block is mapped on its own, the top of the
/// heap is never returned to the system, it grows by 64 MiB at a time, and new threads share one arena.
///
/// Returns false, having changed nothing, where the C library is not glibc. May be repeated.
bool heap_retain() noexcept;

/// Gives free memory back to the system and restores glibc's defaults, except that the threshold above which
/// a block is mapped on its own stays at 128 KiB: once set it no longer adapts itself.
///
/// Returns false where the C library is not glibc. May be repeated.
bool heap_release() noexcept;

}  // namespace dnnsuite::host
