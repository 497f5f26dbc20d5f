// SPDX-License-Identifier: MIT
#pragma once

#include "gpu/library.hpp"

namespace dnnsuite::gpu {

/// CUDA's runtime, libcudart, of the version that the process has or that can be found. Throws Unavailable without a
/// driver or a device, which are asked for first: without them the runtime opens, and then refuses everything.
const Library& cuda_runtime();

/// Tells the tool that is attached to begin, and to end, collecting: cudaProfilerStart and cudaProfilerStop. What nsys
/// (-c cudaProfilerApi) and ncu (--profile-from-start off) wait for. Throws as cuda_runtime, and Error when CUDA
/// refuses.
void cuda_profiler_start();
void cuda_profiler_stop();

}  // namespace dnnsuite::gpu
