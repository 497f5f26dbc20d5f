// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>
#include <iterator>
#include <vector>

#include "fused/math/optimizer.hpp"
#include "fused/tensors.hpp"

namespace dnnsuite::fused {

using TensorList = std::vector<Tensor>;

/// True if each model's part of t [B, ...] lies in one piece.
inline bool contiguous_within(const Tensor& t) {
    int64_t step = 1;
    for (int64_t i = t.dim() - 1; i > 0; --i) {
        const int64_t size = t.size(i);
        if (size > 1 && t.stride(i) != step) return false;
        step *= size;
    }
    return true;
}

/// An int64 tensor on the CPU that holds what the parameters of a step are: row 0 this header, then an OptimizerEntry
/// each, without the gradient.
struct PlanHeader {
    int64_t rule, dtype, models, entries, device;  // device: the index, -1 for the CPU
};
constexpr int64_t kPlanColumns = sizeof(OptimizerEntry) / sizeof(int64_t);
static_assert(sizeof(OptimizerEntry) % sizeof(int64_t) == 0 && sizeof(PlanHeader) <= sizeof(OptimizerEntry));

constexpr int kRuleCount = static_cast<int>(std::size(kRuleNames));

inline int64_t device_of(const Tensor& t) { return t.is_cuda() ? t.get_device_index() : -1; }

/// The header of `plan`, if optimizer_plan made it and nothing has written to it.
inline PlanHeader read_header(const Checker& check, const Tensor& plan) {
    PlanHeader header{};
    STD_TORCH_CHECK(!plan.is_cuda() && plan.dim() == 2 && plan.scalar_type() == ScalarType::Long && plan.size(0) > 0 &&
                        plan.size(1) == kPlanColumns && plan.is_contiguous(),
                    check.op(), ": plan must be what optimizer_plan made");
    std::memcpy(&header, plan.data_ptr(), sizeof(header));
    STD_TORCH_CHECK(header.entries == plan.size(0) - 1, check.op(), ": plan says that it has ", header.entries,
                    " parameters, but has rows for ", plan.size(0) - 1);
    STD_TORCH_CHECK(header.rule >= 0 && header.rule < kRuleCount, check.op(), ": plan has the rule ", header.rule,
                    ", but there are ", kRuleCount);
    STD_TORCH_CHECK(header.models >= 0 && header.dtype >= 0 && header.dtype <= static_cast<int64_t>(DType::kFloat16),
                    check.op(), ": plan has the dtype ", header.dtype, " and ", header.models, " models");
    return header;
}

inline Optimizer parse_rule(const Checker& check, const std::string& name) {
    std::string known;
    for (int i = 0; i < kRuleCount; ++i) {
        if (name == kRuleNames[i]) return static_cast<Optimizer>(i);
        known += std::string(i > 0 ? ", " : "") + kRuleNames[i];
    }
    STD_TORCH_CHECK(false, check.op(), ": rule must be one of ", known, ", not '", name, "'");
    return Optimizer::kSgd;
}

/// Checks the lists of a plan and writes its entries. `states` holds all parameters' first states, then their second
/// and so on; `scalars` likewise.
class PlanWriter {
  public:
    PlanWriter(const std::string& rule, const TensorList& params) : params_(params) {
        header_.rule = static_cast<int64_t>(parse_rule(check_, rule));
        header_.entries = static_cast<int64_t>(params.size());
        entries_.resize(params.size());
        if (params.empty()) return;
        header_.dtype = static_cast<int64_t>(check_.floating(params[0], "params[0]"));
        check_.at_least(params[0], "params[0]", 1);
        header_.models = params[0].size(0);
        header_.device = device_of(params[0]);
        for (size_t i = 0; i < params.size(); ++i) put(params[i], i, "params", i, 0);
    }

    void states(const TensorList& states) {
        const auto needs = generic::rule_needs(static_cast<Optimizer>(header_.rule));
        counted(states, "states", needs.states);
        for (size_t i = 0; i < states.size(); ++i)
            put(states[i], i % params_.size(), "states", i, 2 + static_cast<int>(i / params_.size()));
    }

    void scalars(const TensorList& scalars) {
        const auto needs = generic::rule_needs(static_cast<Optimizer>(header_.rule));
        counted(scalars, "scalars", needs.scalars);
        for (size_t i = 0; i < scalars.size(); ++i) {
            const std::string label = "scalars[" + std::to_string(i) + "]";
            check_.dtype(scalars[i], label.c_str(), ScalarType::Double);
            check_.same_device(scalars[i], label.c_str(), params_[0]);
            check_.shape(scalars[i], label.c_str(), {header_.models});
            OptimizerEntry& entry = entries_[i % params_.size()];
            entry.scalar[i / params_.size()] = static_cast<double*>(scalars[i].data_ptr());
            entry.scalar_stride[i / params_.size()] = scalars[i].stride(0);
        }
    }

    Tensor plan() const {
        const int64_t sizes[2] = {header_.entries + 1, kPlanColumns}, strides[2] = {kPlanColumns, 1};
        AtenTensorHandle handle = nullptr;
        const auto error = aoti_torch_empty_strided(2, sizes, strides, aoti_torch_dtype_int64(),
                                                    aoti_torch_device_type_cpu(), 0, &handle);
        STD_TORCH_CHECK(error == 0, check_.op(), ": no memory for a plan of ", header_.entries, " parameters");
        Tensor plan(handle);
        auto* rows = static_cast<int64_t*>(plan.data_ptr());
        std::memset(rows, 0, sizeof(OptimizerEntry));
        std::memcpy(rows, &header_, sizeof(header_));
        if (!entries_.empty())
            std::memcpy(rows + kPlanColumns, entries_.data(), entries_.size() * sizeof(OptimizerEntry));
        return plan;
    }

  private:
    void counted(const TensorList& tensors, const char* name, int per_parameter) const {
        STD_TORCH_CHECK(tensors.size() == params_.size() * static_cast<size_t>(per_parameter), check_.op(), ": ", name,
                        " has ", tensors.size(), " tensors for ", params_.size(), " params of a rule that needs ",
                        per_parameter, " each");
    }

    void put(const Tensor& t, size_t place, const char* name, size_t i, int slot) {
        const std::string label = std::string(name) + "[" + std::to_string(i) + "]";
        check_.same_kind(t, label.c_str(), params_[0]);
        check_.at_least(t, label.c_str(), 1);
        if (slot > 0) check_.same_shape(t, label.c_str(), params_[place]);
        STD_TORCH_CHECK(t.size(0) == header_.models, check_.op(), ": ", label, " has shape ", shape_text(t),
                        ", but params[0] has ", header_.models, " models");
        STD_TORCH_CHECK(contiguous_within(t), check_.op(), ": ", label,
                        " is written to, so each model's part must be contiguous; strides of shape ", shape_text(t),
                        " are not");
        OptimizerEntry& entry = entries_[place];
        if (slot == 0) entry.elements = elements_per_model(t);
        entry.data[slot] = t.data_ptr();
        entry.stride[slot] = header_.models > 1 ? t.stride(0) : 0;
    }

    Checker check_{"optimizer_plan"};
    const TensorList& params_;
    PlanHeader header_{};
    std::vector<OptimizerEntry> entries_;
};

}  // namespace dnnsuite::fused
