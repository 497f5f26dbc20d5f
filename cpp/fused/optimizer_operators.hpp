// SPDX-License-Identifier: MIT
// The optimizers' operators, the same for both devices but for Step::run(args, like): tensors to arguments.
#pragma once

#include "fused/optimizer_checks.hpp"

namespace dnnsuite::fused {

/// A plan with the gradients and hyper-parameters of one step. Gradients whose models are not contiguous are copied and
/// kept here.
class StepInputs {
  public:
    explicit StepInputs(const Tensor& plan) {
        header_ = read_header(check_, plan);
        const auto* rows = static_cast<const int64_t*>(plan.data_ptr());
        const auto* entries = reinterpret_cast<const OptimizerEntry*>(rows + kPlanColumns);
        entries_.assign(entries, entries + header_.entries);
        args_.rule = static_cast<Optimizer>(header_.rule);
        args_.dtype = static_cast<DType>(header_.dtype);
        args_.models = header_.models;
        args_.entry_count = header_.entries;
    }

    void gradients(const TensorList& grads) {
        STD_TORCH_CHECK(grads.size() == entries_.size(), check_.op(), ": grads has ", grads.size(), " tensors for ",
                        entries_.size(), " params");
        for (size_t i = 0; i < grads.size(); ++i) {
            Tensor grad = grads[i];
            if (!matches(grad, entries_[i])) refuse(grad, i);
            if (!contiguous_within(grad)) copies_.push_back(grad = torch::stable::contiguous(grad));
            entries_[i].data[1] = grad.data_ptr();
            entries_[i].stride[1] = header_.models > 1 ? grad.stride(0) : 0;
        }
    }

    void hyper(const TensorList& values) {
        const int wanted = generic::rule_needs(args_.rule).hypers;
        STD_TORCH_CHECK(static_cast<int>(values.size()) == wanted, check_.op(), ": hyper has ", values.size(),
                        " tensors, the rule ", kRuleNames[header_.rule], " needs ", wanted);
        for (size_t i = 0; i < values.size(); ++i)
            args_.hyper[i] = vector<double>(values[i], "hyper[" + std::to_string(i) + "]", ScalarType::Double);
    }

    template <class T>
    const T* vector(const OptionalTensor& values, const std::string& name, ScalarType dtype) {
        if (!values.has_value()) return nullptr;
        check_.dtype(*values, name.c_str(), dtype);
        check_.shape(*values, name.c_str(), {header_.models});
        STD_TORCH_CHECK(has_device_of(*values), check_.op(), ": ", name, " must be on the device of the parameters");
        copies_.push_back(packed(*values));
        return static_cast<const T*>(copies_.back().data_ptr());
    }

    /// True for a tensor on the device of the parameters.
    bool has_device_of(const Tensor& t) const { return device_of(t) == header_.device; }

    OptimizerArguments& args() {
        args_.entries = entries_.data();
        return args_;
    }

  private:
    bool matches(const Tensor& grad, const OptimizerEntry& entry) const {
        return grad.dim() > 0 && grad.size(0) == header_.models && elements_per_model(grad) == entry.elements &&
               has_device_of(grad) && check_.floating(grad, "grads") == args_.dtype;
    }

    void refuse(const Tensor& grad, size_t i) const {
        STD_TORCH_CHECK(false, check_.op(), ": grads[", i, "] must be like its parameter, ", header_.models,
                        " models of ", entries_[i].elements,
                        " numbers each, on its device and of its dtype; got shape ", shape_text(grad), ", ",
                        torch::headeronly::toString(grad.scalar_type()));
    }

    Checker check_{"optimizer_step_"};
    PlanHeader header_{};
    std::vector<OptimizerEntry> entries_;
    TensorList copies_;
    OptimizerArguments args_{};
};

template <class Step>
struct OptimizerOperators {
    static Tensor plan(const std::string& rule, TensorList params, TensorList states, TensorList scalars) {
        PlanWriter writer(rule, params);
        writer.states(states);
        writer.scalars(scalars);
        return writer.plan();
    }

    static void step(const Tensor& plan, TensorList /*written*/, TensorList grads, TensorList hyper,
                     const OptionalTensor& factor, const OptionalTensor& active, const OptionalTensor& tickets,
                     bool maximize, bool decoupled, bool nesterov) {
        StepInputs in(plan);
        in.gradients(grads);
        if (grads.empty()) return;
        in.hyper(hyper);
        OptimizerArguments& args = in.args();
        args.factor = in.vector<double>(factor, "factor", ScalarType::Double);
        args.active = in.vector<bool>(active, "active", ScalarType::Bool);
        if (tickets.has_value()) {
            STD_TORCH_CHECK(tickets->scalar_type() == ScalarType::Int && tickets->is_cuda() &&
                                in.has_device_of(*tickets) && tickets->is_contiguous() &&
                                tickets->numel() == args.entry_count * args.models,
                            "optimizer_step_: tickets must be int32 zeros on the device, one per parameter and model");
            args.tickets = static_cast<unsigned*>(tickets->data_ptr());
        }
        args.maximize = maximize;
        args.decoupled = decoupled;
        args.nesterov = nesterov;
        if (args.models > 0) Step::run(args, grads[0]);
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("optimizer_plan", TORCH_BOX(&plan));
        m.impl("optimizer_step_", TORCH_BOX(&step));
    }
};

}  // namespace dnnsuite::fused
