// SPDX-License-Identifier: MIT
#pragma once

namespace dnnsuite::gpu {

/// Returns when CUDA's driver is there, initialised, and has a device. Throws Unavailable otherwise.
///
/// Ask this first: without a driver CUPTI answers everything with "unknown error".
void require_driver();

/// Waits until every device on which this process has begun to work has nothing left to do.
/// Throws Error with the driver's words, also when an earlier kernel had failed.
void synchronize_devices();

}  // namespace dnnsuite::gpu
