// SPDX-License-Identifier: MIT
// attention: tensors to cpu/attention_kernel.
#include "fused/cpu/attention_kernel.hpp"

#include "fused/attention_checks.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

template <class Kernel>
void run(const AttentionArguments& args, const Kernel& kernel) {
    const int64_t work = args.length * args.length * args.heads * (args.head_dim + 8) / 4;  // of one sequence
    run_tasks(args.models * args.sequences, work, attention_scratch(args.length, args.head_dim),
              [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
}

Tensor attention(const Tensor& qkv, int64_t num_heads, OptionalTensor p, OptionalTensor rng, bool causal,
                 OptionalTensor key_padding_mask) {
    const Checker check("attention");
    const Tensor x = packed(qkv);
    const OptionalTensor ignored = packed(key_padding_mask);
    AttentionArguments args = attention_arguments(check, x, num_heads, p, rng, causal, ignored);
    Tensor out = new_attended(x);
    args.out = out.data_ptr();
    run(args, DNNSUITE_SELECT(attention_forward));
    return out;
}

Tensor attention_backward(const Tensor& grad, const Tensor& qkv, int64_t num_heads, OptionalTensor p,
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
    run(args, DNNSUITE_SELECT(attention_backward));
    return dqkv;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("attention", TORCH_BOX(&attention));
    m.impl("attention_backward", TORCH_BOX(&attention_backward));
}

}  // namespace dnnsuite::fused
