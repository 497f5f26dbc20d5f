// SPDX-License-Identifier: MIT
// New tensors, contiguous tensors, and how an operator's work is cut; shared by cpu/ and cuda/.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <array>

#include "fused/checks.hpp"

namespace dnnsuite::fused {

inline Tensor packed(const Tensor& t) { return t.is_contiguous() ? t : torch::stable::contiguous(t); }
inline OptionalTensor packed(const OptionalTensor& t) {
    return t.has_value() ? OptionalTensor(packed(*t)) : OptionalTensor();
}
/// The elements from one model of t to the next; of a single one it is never used.
inline int64_t model_stride(const Tensor& t) { return t.size(0) > 1 ? t.stride(0) : 0; }
/// True if all models share one contiguous tensor, as an expanded batch.
inline bool is_shared(const Tensor& t) {
    if (t.size(0) < 2 || t.stride(0) != 0) return false;
    int64_t step = 1;
    for (int64_t d = t.dim() - 1; d > 0; step *= t.size(d--))
        if (t.size(d) != 1 && t.stride(d) != step) return false;
    return true;
}
/// `packed`, where what all models share is left as it is by a CPU kernel that knows of it.
inline Tensor packed_or_shared(const Tensor& t) { return !t.is_cuda() && is_shared(t) ? t : packed(t); }
inline const void* pointer(const OptionalTensor& t) { return t.has_value() ? t->data_ptr() : nullptr; }

/// The dtype that sums are kept in: float32 for the 16-bit types, else the tensor's own.
inline ScalarType accumulator_of(const Tensor& t) {
    return t.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

/// An uninitialised contiguous tensor with the dtype (or that of its sums) and device of `like`. The C shim is
/// used because torch::stable::empty looks the operator up by name at every call.
inline Tensor new_tensor(const Tensor& like, const int64_t* sizes, int64_t dims, bool accumulator = false) {
    std::array<int64_t, 16> strides{};
    STD_TORCH_CHECK(dims <= 16, "dnnsuite: a tensor has ", dims, " dimensions, more than 16");
    int64_t step = 1;
    for (int64_t i = dims - 1; i >= 0; --i) {
        strides[static_cast<size_t>(i)] = step;
        step *= sizes[i] > 1 ? sizes[i] : 1;
    }
    int32_t dtype = 0, device_type = 0, device_index = 0;
    if (accumulator)
        dtype = accumulator_of(like) == ScalarType::Double ? aoti_torch_dtype_float64() : aoti_torch_dtype_float32();
    else
        aoti_torch_get_dtype(like.get(), &dtype);
    aoti_torch_get_device_type(like.get(), &device_type);
    aoti_torch_get_device_index(like.get(), &device_index);
    AtenTensorHandle handle = nullptr;
    const auto error = aoti_torch_empty_strided(dims, sizes, strides.data(), dtype, device_type, device_index, &handle);
    STD_TORCH_CHECK(error == 0, "dnnsuite: no memory for a tensor of shape ", shape_text(like),
                    " or one like it (details on stderr)");
    return Tensor(handle);
}
inline Tensor new_tensor(const Tensor& like, std::initializer_list<int64_t> sizes) {
    return new_tensor(like, sizes.begin(), static_cast<int64_t>(sizes.size()));
}
inline Tensor new_accumulator(const Tensor& like, std::initializer_list<int64_t> sizes) {
    return new_tensor(like, sizes.begin(), static_cast<int64_t>(sizes.size()), true);
}
inline Tensor new_like(const Tensor& like) {
    const auto sizes = like.sizes();
    return new_tensor(like, sizes.data(), like.dim());
}

/// Elements of one model of x [B, ...].
inline int64_t elements_per_model(const Tensor& x) { return x.size(0) > 0 ? x.numel() / x.size(0) : 0; }

/// The sums of each task [B, tasks, columns] and what they add up to [B, columns], in the dtype of `like`.
class TaskSums {
  public:
    TaskSums(const Tensor& like, const Rows& rows)
        : rows_(rows), total_(new_tensor(like, {rows.models, rows.columns})),
          single_(rows.tasks_per_model == 1 && like.scalar_type() == accumulator_of(like)),
          parts_(single_ ? total_ : new_accumulator(like, {rows.models, rows.tasks_per_model, rows.columns})) {}

    void* parts() const { return parts_.data_ptr(); }

    /// Adds the tasks in order and returns the total.
    template <class Backend>
    Tensor total(DType dtype) const {
        if (!single_) Backend::add_task_sums(parts_.data_ptr(), total_.data_ptr(), rows_, dtype, total_);
        return total_;
    }

  private:
    Rows rows_;
    Tensor total_;
    bool single_;
    Tensor parts_;
};

}  // namespace dnnsuite::fused
