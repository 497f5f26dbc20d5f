// SPDX-License-Identifier: MIT
// Checks of arguments, shared by cpu/ and cuda/. The operators sit on torch's stable ABI, where every
// error reaches Python as a RuntimeError: the message names the operator, the argument and its value.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

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

}  // namespace dnnsuite::fused
