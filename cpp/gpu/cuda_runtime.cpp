// SPDX-License-Identifier: MIT
#include "gpu/cuda_runtime.hpp"

#include <string>

#include "base/error.hpp"

namespace dnnsuite::gpu {

namespace {

void check_driver() {
    const std::string help = "a machine with an NVIDIA GPU and its driver is needed";
    const Library& driver = Library::open("libcuda.so.1", help);
    if (const int status = driver.function<int(unsigned)>("cuInit")(0); status != 0)
        throw Unavailable("CUDA's driver does not start: cuInit gives " + std::to_string(status), driver.path(), help);
    int devices = 0;
    const int status = driver.function<int(int*)>("cuDeviceGetCount")(&devices);
    if (status != 0 || devices == 0)
        throw Unavailable("CUDA's driver shows no device", driver.path(), "check CUDA_VISIBLE_DEVICES; " + help);
}

void call(const char* function) {
    const Library& runtime = cuda_runtime();
    if (const int status = runtime.function<int()>(function)(); status != 0)
        throw Error(std::string(function) + " gives " + std::to_string(status));
}

}  // namespace

const Library& cuda_runtime() {
    check_driver();
    const std::string help = "pip install nvidia-cuda-runtime, or set CUDA_HOME to the CUDA toolkit";
    try {
        return Library::open("libcudart.so.13", help);
    } catch (const Unavailable&) {
        return Library::open("libcudart.so.12", help);
    }
}

void cuda_profiler_start() { call("cudaProfilerStart"); }
void cuda_profiler_stop() { call("cudaProfilerStop"); }

}  // namespace dnnsuite::gpu
