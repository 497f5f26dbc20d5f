// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "fused/tensors.hpp"

namespace dnnsuite::fused {

using TensorList = std::vector<Tensor>;

/// The lists of one step as entries; gradients that are not contiguous within a model are copied and kept here.
class OptimizerInputs {
  public:
    OptimizerInputs(const char* op, Optimizer kind, const TensorList& params) : check_(op), params_(params) {
        args_.kind = kind;
        args_.entry_count = static_cast<int64_t>(params.size());
        entries_.resize(params.size());
        if (params.empty()) return;
        args_.dtype = check_.floating(params[0], "params[0]");
        check_.at_least(params[0], "params[0]", 1);
        args_.models = params[0].size(0);
        add(params, "params", 0);
    }

    /// Tensors `slot` of every entry: they must match the parameters one by one.
    void add(const TensorList& tensors, const char* name, int slot) {
        STD_TORCH_CHECK(tensors.size() == params_.size(), check_.op(), ": ", name, " has ", tensors.size(),
                        " tensors for ", params_.size(), " params");
        for (size_t i = 0; i < tensors.size(); ++i) {
            const std::string label = std::string(name) + "[" + std::to_string(i) + "]";
            check_.same_kind(tensors[i], label.c_str(), params_[0]);
            check_.same_shape(tensors[i], label.c_str(), params_[i]);
            check_.at_least(tensors[i], label.c_str(), 1);
            STD_TORCH_CHECK(tensors[i].size(0) == args_.models, check_.op(), ": ", label, " has shape ",
                            shape_text(tensors[i]), ", but params[0] has ", args_.models, " models");
            Tensor t = tensors[i];
            if (!contiguous_within(t)) {
                STD_TORCH_CHECK(slot == 1, check_.op(), ": ", label, " is written to, so each model's part must be ",
                                "contiguous; strides of shape ", shape_text(t), " are not");
                t = torch::stable::contiguous(t);
                copies_.push_back(t);
            }
            entries_[i].elements = elements_per_model(t);
            entries_[i].data[slot] = t.data_ptr();
            entries_[i].stride[slot] = args_.models > 1 ? t.stride(0) : 0;
        }
    }

    /// Hyper-parameter `slot`, float64 [B]; a broken stride is made whole.
    void hyper(const Tensor& values, const char* name, int slot) {
        if (params_.empty()) return;
        check_.dtype(values, name, ScalarType::Double);
        check_.shape(values, name, {args_.models});
        STD_TORCH_CHECK(values.is_cuda() == params_[0].is_cuda(), check_.op(), ": ", name,
                        " must be on the device of params");
        copies_.push_back(packed(values));
        args_.hyper[slot] = static_cast<const double*>(copies_.back().data_ptr());
    }

    OptimizerArguments& args() {
        args_.entries = entries_.data();
        return args_;
    }

  private:
    static bool contiguous_within(const Tensor& t) {
        int64_t step = 1;
        for (int64_t i = t.dim() - 1; i > 0; --i) {
            if (t.size(i) > 1 && t.stride(i) != step) return false;
            step *= t.size(i);
        }
        return true;
    }

    Checker check_;
    const TensorList& params_;
    TensorList copies_;
    std::vector<OptimizerEntry> entries_;
    OptimizerArguments args_{};
};

}  // namespace dnnsuite::fused
