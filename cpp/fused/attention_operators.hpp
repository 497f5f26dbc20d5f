// SPDX-License-Identifier: MIT
// attention: tensors to arguments, the same for both devices. A Backend has forward(args, like) and
// backward(args, like).
#pragma once

#include "fused/tensors.hpp"

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
    args.dropout = check.dropout(p, rng, qkv);
    if (ignored.has_value()) {
        check.dtype(*ignored, "key_padding_mask", ScalarType::Bool);
        check.same_device(*ignored, "key_padding_mask", qkv);
        check.shape(*ignored, "key_padding_mask", {args.models, args.sequences, args.length});
        args.ignored = static_cast<const bool*>(ignored->data_ptr());
    }
    return args;
}

template <class Backend>
struct AttentionOperators {
    static Tensor attention(const Tensor& qkv, int64_t num_heads, OptionalTensor p, OptionalTensor rng, bool causal,
                            OptionalTensor key_padding_mask) {
        const Checker check("attention");
        const Tensor x = packed(qkv);
        const OptionalTensor ignored = packed(key_padding_mask);
        AttentionArguments args = attention_arguments(check, x, num_heads, p, rng, causal, ignored);
        Tensor out = new_tensor(x, {x.size(0), x.size(1), x.size(2), x.size(3) / 3});
        args.out = out.data_ptr();
        Backend::forward(args, x);
        return out;
    }

    static Tensor attention_backward(const Tensor& grad, const Tensor& qkv, int64_t num_heads, OptionalTensor p,
                                     OptionalTensor rng, bool causal, OptionalTensor key_padding_mask) {
        const Checker check("attention_backward");
        const Tensor x = packed(qkv), g = packed(grad);
        const OptionalTensor ignored = packed(key_padding_mask);
        AttentionArguments args = attention_arguments(check, x, num_heads, p, rng, causal, ignored);
        check.same_kind(g, "grad", x);
        check.shape(g, "grad", {x.size(0), x.size(1), x.size(2), x.size(3) / 3});
        Tensor dqkv = new_like(x);
        args.grad = g.data_ptr();
        args.dqkv = dqkv.data_ptr();
        Backend::backward(args, x);
        return dqkv;
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("attention", TORCH_BOX(&attention));
        m.impl("attention_backward", TORCH_BOX(&attention_backward));
    }
};

}  // namespace dnnsuite::fused
