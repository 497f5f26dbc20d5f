// SPDX-License-Identifier: MIT
#pragma once
#include "fused/kernels/host_cuda/halves.hpp"
