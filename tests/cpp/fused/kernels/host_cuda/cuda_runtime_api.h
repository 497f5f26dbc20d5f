// SPDX-License-Identifier: MIT
// Stands for the toolkit's header where the CUDA kernels are compiled for the host, without a toolkit.
#pragma once
#include "fused/kernels/host_cuda/runtime.hpp"
