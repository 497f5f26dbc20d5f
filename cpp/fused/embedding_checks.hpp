// SPDX-License-Identifier: MIT
#pragma once

#include "fused/checks.hpp"

namespace dnnsuite::fused {

/// Indices [B, ...] whose models are each contiguous: those that all models share (stride 0) stay one copy.
inline Tensor packed_indices(const Tensor& indices) {
    if (indices.dim() == 0 || indices.stride(0) != 0) return packed(indices);
    int64_t step = 1;
    for (int64_t i = indices.dim() - 1; i > 0; --i) {
        if (indices.size(i) > 1 && indices.stride(i) != step) return packed(indices);
        step *= indices.size(i);
    }
    return indices;
}

inline EmbeddingArguments embedding_arguments(const Checker& check, const Tensor& weight, const Tensor& indices,
                                              int64_t padding_idx) {
    STD_TORCH_CHECK(weight.dim() == 3, check.op(), ": weight must be [B, V, D], not ", shape_text(weight));
    check.dtype(indices, "indices", ScalarType::Long);
    check.at_least(indices, "indices", 1);
    STD_TORCH_CHECK(indices.size(0) == weight.size(0), check.op(), ": indices ", shape_text(indices),
                    " are of another number of models than weight ", shape_text(weight));
    EmbeddingArguments args{};
    args.dtype = check.floating(weight, "weight");
    args.models = weight.size(0);
    args.vocabulary = weight.size(1);
    args.columns = weight.size(2);
    args.count = elements_per_model(indices);
    args.index_stride = indices.stride(0) == 0 ? 0 : args.count;
    args.padding_idx = padding_idx;
    args.weight = weight.data_ptr();
    args.indices = static_cast<const int64_t*>(indices.data_ptr());
    return args;
}

/// An uninitialised result [indices' shape..., D].
inline Tensor new_embedded(const Tensor& weight, const Tensor& indices) {
    std::array<int64_t, 16> sizes{};
    STD_TORCH_CHECK(indices.dim() < 16, "embedding: indices have ", indices.dim(), " dimensions, more than 15");
    for (int64_t i = 0; i < indices.dim(); ++i) sizes[static_cast<size_t>(i)] = indices.size(i);
    sizes[static_cast<size_t>(indices.dim())] = weight.size(2);
    return new_tensor(weight, sizes.data(), indices.dim() + 1);
}

}  // namespace dnnsuite::fused
