// SPDX-License-Identifier: MIT
#pragma once

#include "fused/checks.hpp"

namespace dnnsuite::fused {

constexpr int64_t kLongestAttention = 128;  // beyond it a head's scores leave the cache: use torch's operators

inline AttentionArguments attention_arguments(const Checker& check, const Tensor& qkv, int64_t heads,
                                              const OptionalTensor& p, const OptionalTensor& rng, bool causal,
                                              const OptionalTensor& ignored) {
    STD_TORCH_CHECK(qkv.dim() == 4, check.op(), ": qkv must be [B, N, L, 3E], not ", shape_text(qkv));
    STD_TORCH_CHECK(heads > 0 && qkv.size(3) % (3 * heads) == 0 && qkv.size(3) > 0, check.op(),
                    ": the last dimension of qkv must be 3 * num_heads * head_dim; ", qkv.size(3),
                    " does not divide by 3 * ", heads);
    STD_TORCH_CHECK(qkv.size(2) <= kLongestAttention, check.op(), ": sequences of at most ", kLongestAttention,
                    " tokens, not ", qkv.size(2));
    AttentionArguments args{};
    args.dtype = check.floating(qkv, "qkv");
    args.models = qkv.size(0);
    args.sequences = qkv.size(1);
    args.length = qkv.size(2);
    args.heads = heads;
    args.head_dim = qkv.size(3) / (3 * heads);
    args.causal = causal;
    args.qkv = qkv.data_ptr();
    args.dropout = check.dropout(p, rng, args.models);
    if (ignored.has_value()) {
        check.dtype(*ignored, "key_padding_mask", ScalarType::Bool);
        check.shape(*ignored, "key_padding_mask", {args.models, args.sequences, args.length});
        args.ignored = static_cast<const bool*>(ignored->data_ptr());
    }
    return args;
}

inline Tensor new_attended(const Tensor& qkv) {
    return new_tensor(qkv, {qkv.size(0), qkv.size(1), qkv.size(2), qkv.size(3) / 3});
}

}  // namespace dnnsuite::fused
