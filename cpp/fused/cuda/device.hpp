// SPDX-License-Identifier: MIT
// The device and stream that torch means, for kernels that link a CUDA runtime of their own.
#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "fused/kernels/kernels.hpp"
#include "fused/tensors.hpp"

namespace dnnsuite::fused {

/// Selects a tensor's device while it lives and knows torch's current stream there.
class OnDevice {
  public:
    explicit OnDevice(const Tensor& t) : guard_(t.get_device_index()) {
        const int32_t index = t.get_device_index();
        check(cudaSetDevice(index));  // this library's runtime has its own idea of the current device
        void* stream = nullptr;
        STD_TORCH_CHECK(current_stream()(index, &stream) == 0, "dnnsuite: torch did not tell its current CUDA stream");
        stream_ = static_cast<cudaStream_t>(stream);
    }
    cudaStream_t stream() const { return stream_; }

    static void check(cudaError_t error) {
        STD_TORCH_CHECK(error == cudaSuccess, "dnnsuite: a CUDA call failed: ", cudaGetErrorString(error));
    }

  private:
    using CurrentStream = AOTITorchError (*)(int32_t, void**);

    /// Looked up in the libtorch_cuda that is loaded already, so that nothing links it.
    static CurrentStream current_stream() {
        static const CurrentStream found = [] {
            void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
            void* symbol = library == nullptr ? nullptr : dlsym(library, "aoti_torch_get_current_cuda_stream");
            return reinterpret_cast<CurrentStream>(symbol);
        }();
        STD_TORCH_CHECK(found != nullptr, "dnnsuite: libtorch_cuda.so is not loaded: is this a CUDA build of torch?");
        return found;
    }

    torch::stable::accelerator::DeviceGuard guard_;
    cudaStream_t stream_ = nullptr;
};

/// Calls launch(stream) on the tensor's device and turns its error into an exception.
template <class Launch>
void on_device(const Tensor& t, const Launch& launch) {
    const OnDevice device(t);
    OnDevice::check(launch(device.stream()));
}

struct CudaBackend {
    static void add_task_sums(const void* parts, void* total, const Rows& rows, DType dtype, const Tensor& like) {
        on_device(like, [&](cudaStream_t s) { return kernels::add_task_sums(parts, total, rows, dtype, s); });
    }
};

}  // namespace dnnsuite::fused
