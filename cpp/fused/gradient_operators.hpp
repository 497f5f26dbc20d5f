// SPDX-License-Identifier: MIT
// gradient_norms, the same for both devices but for Backend::norms(args, norms).
#pragma once

#include <cmath>

#include "fused/math/gradient.hpp"
#include "fused/optimizer_checks.hpp"

namespace dnnsuite::fused {

template <class Backend>
struct GradientOperators {
    /// float64 [B]: the norm of all gradients of each model together.
    static Tensor norms(TensorList grads, double norm_type) {
        const Checker check("gradient_norms");
        STD_TORCH_CHECK(!grads.empty(), check.op(), ": grads is empty, so the number of models is not known");
        STD_TORCH_CHECK(norm_type > 0.0, check.op(), ": norm_type must be positive or infinite, not ", norm_type);
        GradientArguments args{};
        args.dtype = check.floating(grads[0], "grads[0]");
        args.power = norm_type;
        args.norm = norm_type == 1.0        ? Norm::kOne
                    : norm_type == 2.0      ? Norm::kTwo
                    : std::isinf(norm_type) ? Norm::kInfinity
                                            : Norm::kPower;
        check.at_least(grads[0], "grads[0]", 1);
        args.models = grads[0].size(0);
        std::vector<GradientEntry> entries;
        for (size_t i = 0; i < grads.size(); ++i) {
            const std::string label = "grads[" + std::to_string(i) + "]";
            check.same_kind(grads[i], label.c_str(), grads[0]);
            STD_TORCH_CHECK(grads[i].dim() > 0 && grads[i].size(0) == args.models, check.op(), ": ", label,
                            " has shape ", shape_text(grads[i]), ", but grads[0] has ", args.models, " models");
            if (!contiguous_within(grads[i])) grads[i] = torch::stable::contiguous(grads[i]);
            const int64_t elements = elements_per_model(grads[i]);
            if (elements == 0) continue;
            entries.push_back({grads[i].data_ptr(), grads[i].stride(0), elements, args.chunks});
            args.chunks += (elements + kGradientChunk - 1) / kGradientChunk;
        }
        args.entry_count = static_cast<int64_t>(entries.size());
        args.entries = entries.data();
        const Tensor norms = doubles(grads[0], args.models);
        if (args.models > 0) Backend::norms(args, norms);
        return norms;
    }

    static Tensor doubles(const Tensor& like, int64_t count) {
        const int64_t stride = 1;
        int32_t device_type = 0, device_index = 0;
        aoti_torch_get_device_type(like.get(), &device_type);
        aoti_torch_get_device_index(like.get(), &device_index);
        AtenTensorHandle handle = nullptr;
        const auto error = aoti_torch_empty_strided(1, &count, &stride, aoti_torch_dtype_float64(), device_type,
                                                    device_index, &handle);
        STD_TORCH_CHECK(error == 0, "gradient_norms: no memory for ", count, " numbers");
        return Tensor(handle);
    }

    static void implement(torch::stable::detail::StableLibrary& m) { m.impl("gradient_norms", TORCH_BOX(&norms)); }
};

}  // namespace dnnsuite::fused
