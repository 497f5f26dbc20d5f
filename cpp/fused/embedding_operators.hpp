// SPDX-License-Identifier: MIT
// embedding: tensors to arguments, the same for both devices. A Backend has check_indices(check, args),
// forward(args, like) and backward(args, like).
#pragma once

#include "fused/tensors.hpp"

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
    check.same_device(indices, "indices", weight);
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

template <class Backend>
struct EmbeddingOperators {
    static Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx) {
        const Checker check("embedding");
        const Tensor w = packed(weight), ix = packed_indices(indices);
        EmbeddingArguments args = embedding_arguments(check, w, ix, padding_idx);
        Backend::check_indices(check, args);
        Tensor out = new_embedded(w, ix);
        args.out = out.data_ptr();
        Backend::forward(args, w);
        return out;
    }

    static Tensor embedding_backward(const Tensor& grad, const Tensor& indices, int64_t vocabulary,
                                     int64_t padding_idx) {
        const Checker check("embedding_backward");
        const Tensor g = packed(grad), ix = packed_indices(indices);
        check.at_least(g, "grad", 2);
        Tensor dweight = new_tensor(g, {g.size(0), vocabulary, g.size(g.dim() - 1)});
        EmbeddingArguments args = embedding_arguments(check, dweight, ix, padding_idx);
        STD_TORCH_CHECK(g.numel() == args.models * args.count * args.columns, check.op(), ": grad has shape ",
                        shape_text(grad), ", which does not fit indices ", shape_text(indices));
        Backend::check_indices(check, args);
        args.grad = g.data_ptr();
        args.dweight = dweight.data_ptr();
        Backend::backward(args, g);
        return dweight;
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("embedding", TORCH_BOX(&embedding));
        m.impl("embedding_backward", TORCH_BOX(&embedding_backward));
    }
};

}  // namespace dnnsuite::fused
