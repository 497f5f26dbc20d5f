// SPDX-License-Identifier: MIT
#include "gpu/driver.hpp"

#include <string>

#include "base/error.hpp"
#include "gpu/library.hpp"

namespace dnnsuite::gpu {

namespace {

// The driver's interface as cuda.h declares it. By hand, so that a machine without the toolkit can say what it lacks.
using Result = int;
using Device = int;
using Context = struct CUctx_st*;
constexpr Result kNoDevice = 100;

const Library& driver() {
    try {
        return Library::open("libcuda.so.1", "");
    } catch (const Unavailable& error) {
        throw Unavailable("no NVIDIA driver: " + error.what_is_missing, error.looked_in,
                          "install NVIDIA's driver, or start the container with its GPUs (--gpus all)");
    }
}

void check(const Library& cuda, Result result, const char* call) {
    if (result == 0) {
        return;
    }
    const char* text = nullptr;
    cuda.function<Result(Result, const char**)>("cuGetErrorString")(result, &text);
    throw Error(std::string(call) + ": " + (text != nullptr ? text : "unknown error") + " (" + std::to_string(result) +
                ")");
}

void synchronize(const Library& cuda, Device device) {
    unsigned flags = 0;
    int active = 0;
    check(cuda, cuda.function<Result(Device, unsigned*, int*)>("cuDevicePrimaryCtxGetState")(device, &flags, &active),
          "cuDevicePrimaryCtxGetState");
    if (active == 0) {
        return;
    }
    Context context = nullptr;
    check(cuda, cuda.function<Result(Context*, Device)>("cuDevicePrimaryCtxRetain")(&context, device),
          "cuDevicePrimaryCtxRetain");
    Result waited = cuda.function<Result(Context)>("cuCtxPushCurrent_v2")(context);
    if (waited == 0) {
        waited = cuda.function<Result()>("cuCtxSynchronize")();
        cuda.function<Result(Context*)>("cuCtxPopCurrent_v2")(&context);
    }
    cuda.function<Result(Device)>("cuDevicePrimaryCtxRelease_v2")(device);
    check(cuda, waited, "cuCtxSynchronize");
}

int device_count(const Library& cuda) {
    int count = 0;
    check(cuda, cuda.function<Result(int*)>("cuDeviceGetCount")(&count), "cuDeviceGetCount");
    return count;
}

}  // namespace

void require_driver() {
    const Library& cuda = driver();
    const Result result = cuda.function<Result(unsigned)>("cuInit")(0);
    if (result == kNoDevice) {
        throw Unavailable("no NVIDIA GPU is visible", cuda.path(),
                          "look at CUDA_VISIBLE_DEVICES, and at what the container was given");
    }
    try {
        check(cuda, result, "cuInit");
    } catch (const Error& error) {
        throw Unavailable(std::string("NVIDIA's driver does not start: ") + error.what(), cuda.path(),
                          "`nvidia-smi` says more");
    }
    if (device_count(cuda) == 0) {
        throw Unavailable("no NVIDIA GPU is visible", cuda.path(), "look at CUDA_VISIBLE_DEVICES");
    }
}

void synchronize_devices() {
    const Library& cuda = driver();
    const int count = device_count(cuda);
    for (Device device = 0; device < count; ++device) {
        synchronize(cuda, device);
    }
}

}  // namespace dnnsuite::gpu
