// SPDX-License-Identifier: MIT
#include "fused/cpu/attention_kernel.hpp"

#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

template <class T>
struct Attention : ::testing::Test {
    void check(int64_t models, int64_t length, int64_t dim, bool causal, bool masked, bool drops, size_t shift = 0) {
        constexpr int64_t kSequences = 2, kHeads = 2;
        const int64_t tokens = models * kSequences * length, width = kHeads * dim;
        Both<T> qkv(tokens * 3 * width, shift), grad(tokens * width), out(tokens * width), dqkv(tokens * 3 * width);
        qkv.random(1), grad.random(2);
        std::unique_ptr<bool[]> ignored(new bool[static_cast<size_t>(tokens)]);
        for (int64_t i = 0; i < tokens; ++i) ignored[static_cast<size_t>(i)] = i % length > 0 && i % 3 == 0;
        const Dropout dropout(models);
        AttentionArguments args{};
        args.dtype = kDType<T>;
        args.models = models, args.sequences = kSequences, args.length = length;
        args.heads = kHeads, args.head_dim = dim, args.causal = causal;
        if (masked) args.ignored = ignored.get();
        if (drops) args.dropout = dropout.args;
        AttentionArguments cpu = for_cpu<T>(args);
        args.qkv = qkv.cuda(), args.grad = grad.cuda(), args.out = out.cuda(), args.dqkv = dqkv.cuda();
        cpu.qkv = qkv.cpu(), cpu.grad = grad.cpu(), cpu.out = out.cpu(), cpu.dqkv = dqkv.cpu();
        run_cuda({&out.room()}, [&] { return attention_forward(args, nullptr); });
        run_cuda({&dqkv.room()}, [&] { return attention_backward(args, nullptr); });
        baseline::attention_forward(cpu, 0, models * kSequences, scratch(attention_scratch(length, dim)));
        baseline::attention_backward(cpu, 0, models * kSequences, scratch(attention_scratch(length, dim)));
        out.expect_near("out", 20);
        dqkv.expect_near("dqkv", 40);
    }
};
TYPED_TEST_SUITE(Attention, Numbers);

TYPED_TEST(Attention, IsTheCpus) {
    this->check(1, 5, 3, false, false, false);
    this->check(3, 17, 16, true, false, true);
    this->check(1, 33, 40, false, true, true, 1);
    this->check(1, 128, 8, true, true, false);
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
