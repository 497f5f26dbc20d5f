// SPDX-License-Identifier: MIT
// Checks and small tensor helpers shared by cpu/ and cuda/. The operators sit on torch's stable ABI, where every
// error reaches Python as a RuntimeError: the message names the operator, the argument and its value.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <initializer_list>
#include <optional>
#include <string>

#include "fused/arguments.hpp"

namespace dnnsuite::fused {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;

inline std::string shape_text(const Tensor& t) {
    std::string text = "[";
    for (int64_t i = 0; i < t.dim(); ++i) text += (i > 0 ? ", " : "") + std::to_string(t.size(i));
    return text + "]";
}

inline std::string shape_text(std::initializer_list<int64_t> sizes) {
    std::string text = "[";
    for (int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    return text + "]";
}

/// An operator's name, for messages.
class Checker {
  public:
    explicit Checker(const char* op) : op_(op) {}

    /// The dtype of a floating tensor. The CPU has float32 and float64, CUDA the two 16-bit types as well.
    DType floating(const Tensor& t, const char* name) const {
        switch (t.scalar_type()) {
            case ScalarType::Float: return DType::kFloat32;
            case ScalarType::Double: return DType::kFloat64;
            case ScalarType::BFloat16:
                if (t.is_cuda()) return DType::kBFloat16;
                break;
            case ScalarType::Half:
                if (t.is_cuda()) return DType::kFloat16;
                break;
            default: break;
        }
        STD_TORCH_CHECK(false, op_, ": ", name, " must be float32 or float64 (on CUDA also bfloat16 or float16), not ",
                        torch::headeronly::toString(t.scalar_type()));
        return DType::kFloat32;
    }

    void dtype(const Tensor& t, const char* name, ScalarType wanted) const {
        STD_TORCH_CHECK(t.scalar_type() == wanted, op_, ": ", name, " must be ", torch::headeronly::toString(wanted),
                        ", not ", torch::headeronly::toString(t.scalar_type()));
    }

    void same_kind(const Tensor& t, const char* name, const Tensor& as) const {
        dtype(t, name, as.scalar_type());
        same_device(t, name, as);
    }

    void same_device(const Tensor& t, const char* name, const Tensor& as) const {
        STD_TORCH_CHECK(t.get_device_index() == as.get_device_index() && t.is_cuda() == as.is_cuda(), op_, ": ", name,
                        " must be on the device of the first argument");
    }

    void shape(const Tensor& t, const char* name, std::initializer_list<int64_t> wanted) const {
        bool same = t.dim() == static_cast<int64_t>(wanted.size());
        int64_t i = 0;
        for (int64_t size : wanted) same = same && t.size(i++) == size;
        STD_TORCH_CHECK(same, op_, ": ", name, " must have shape ", shape_text(wanted), ", not ", shape_text(t));
    }

    void same_shape(const Tensor& t, const char* name, const Tensor& as) const {
        bool same = t.dim() == as.dim();
        for (int64_t i = 0; same && i < t.dim(); ++i) same = t.size(i) == as.size(i);
        STD_TORCH_CHECK(same, op_, ": ", name, " must have shape ", shape_text(as), ", not ", shape_text(t));
    }

    void at_least(const Tensor& t, const char* name, int64_t dims) const {
        STD_TORCH_CHECK(t.dim() >= dims, op_, ": ", name, " must have at least ", dims,
                        " dimensions, the first of them the models, not shape ", shape_text(t));
    }

    /// Rates p [B] and generators rng [B, 2]; both or neither. On the CPU the rates are looked at as well.
    DropoutArguments dropout(const OptionalTensor& p, const OptionalTensor& rng, const Tensor& x) const {
        STD_TORCH_CHECK(p.has_value() == rng.has_value(), op_, ": p and rng go together: pass both or neither");
        if (!p.has_value()) return {};
        const int64_t models = x.size(0);
        dtype(*p, "p", ScalarType::Float);
        dtype(*rng, "rng", ScalarType::Long);
        same_device(*p, "p", x);
        same_device(*rng, "rng", x);
        shape(*p, "p", {models});
        shape(*rng, "rng", {models, 2});
        const auto* rates = static_cast<const float*>(p->data_ptr());
        for (int64_t i = 0; i < models && !p->is_cuda(); ++i) {
            const float rate = rates[i * p->stride(0)];
            STD_TORCH_CHECK(rate >= 0.0f && rate <= 1.0f, op_, ": p must be within [0, 1], not ", rate, " (model ", i,
                            ")");
        }
        return {rates, p->stride(0), static_cast<const int64_t*>(rng->data_ptr()), rng->stride(0), rng->stride(1)};
    }

    Activation activation(const std::string& name) const {
        if (name == "none") return Activation::kNone;
        if (name == "relu") return Activation::kRelu;
        STD_TORCH_CHECK(name == "gelu", op_, ": activation must be 'none', 'relu' or 'gelu', not '", name, "'");
        return Activation::kGelu;
    }

    const char* op() const { return op_; }

  private:
    const char* op_;
};

inline Tensor packed(const Tensor& t) { return t.is_contiguous() ? t : torch::stable::contiguous(t); }
inline OptionalTensor packed(const OptionalTensor& t) {
    return t.has_value() ? OptionalTensor(packed(*t)) : OptionalTensor();
}
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
    STD_TORCH_CHECK(error == 0, "dnnsuite: no memory for a tensor of shape ",
                    shape_text(like), " or one like it (details on stderr)");
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

/// Cuts `models` arrays of `elements` numbers into rows and rows into tasks of about `per_task` numbers.
inline Rows cut_rows(int64_t models, int64_t elements, int64_t columns, int64_t per_task = 16384) {
    Rows rows;
    rows.models = models;
    rows.elements = elements;
    rows.columns = columns > 0 ? columns : 1;
    rows.rows = (elements + rows.columns - 1) / rows.columns;
    rows.rows_per_task = per_task / rows.columns > 1 ? per_task / rows.columns : 1;
    // One task even without rows: it sets the sums to zero.
    rows.tasks_per_model = rows.rows > 0 ? (rows.rows + rows.rows_per_task - 1) / rows.rows_per_task : 1;
    return rows;
}

/// The sums of each task [B, tasks, columns] and what they add up to [B, columns], in the dtype of `like`.
class TaskSums {
  public:
    TaskSums(const Tensor& like, const Rows& rows)
        : rows_(rows),
          total_(new_tensor(like, {rows.models, rows.columns})),
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
