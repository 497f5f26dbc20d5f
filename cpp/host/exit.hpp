// SPDX-License-Identifier: MIT
#pragma once

namespace dnnsuite::host {

/// From now on `exit` flushes C's streams and ends this process there, with its status: destructors of libraries'
/// static objects, and functions registered with `atexit` earlier, do not run. For a forked child that has libraries
/// whose threads it lacks: their destructors would wait for these threads for ever.
///
/// Returns false, having changed nothing, where the C library is not glibc. May be repeated.
bool exit_without_destructors() noexcept;

}  // namespace dnnsuite::host
