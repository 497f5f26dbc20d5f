// SPDX-License-Identifier: MIT
#include "fused/cpu/gradient_kernel.hpp"

#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

template <class T>
struct Gradient : ::testing::Test {
    void check(int64_t models, const std::vector<int64_t>& sizes, Norm norm, size_t shift) {
        std::vector<Both<T>> grads;
        std::vector<GradientEntry> cuda_entries, cpu_entries;
        GradientArguments args{};
        args.dtype = kDType<T>;
        args.norm = norm;
        args.power = 3.0;
        args.models = models;
        for (const int64_t size : sizes) {
            grads.emplace_back(models * size, shift).random(static_cast<unsigned>(size));
            cuda_entries.push_back({nullptr, size, size, args.chunks});
            args.chunks += (size + kGradientChunk - 1) / kGradientChunk;
        }
        cpu_entries = cuda_entries;
        for (size_t i = 0; i < grads.size(); ++i) {
            cuda_entries[i].data = grads[i].cuda();
            cpu_entries[i].data = grads[i].cpu();
        }
        args.entry_count = static_cast<int64_t>(sizes.size());
        GradientArguments cpu = for_cpu<T>(args);
        args.entries = cuda_entries.data(), cpu.entries = cpu_entries.data();
        Both<double> parts(models * args.chunks), norms(models);
        run_cuda({&parts.room(), &norms.room()},
                 [&] { return gradient_norms(args, parts.cuda(), norms.cuda(), nullptr); });
        baseline::gradient_parts(cpu, 0, models * cpu.chunks, parts.cpu());
        for (int64_t b = 0; b < models; ++b) {
            double total = 0.0;
            for (int64_t i = 0; i < cpu.chunks; ++i)
                total = generic::norm_join(norm, total, parts.cpu()[b * cpu.chunks + i]);
            norms.cpu()[b] = generic::norm_finish(norm, 3.0, total);
        }
        parts.expect_near("parts", 1000);
        norms.expect_near("norms", 1000);
    }
};
TYPED_TEST_SUITE(Gradient, Numbers);

TYPED_TEST(Gradient, IsTheCpus) {
    for (const Norm norm : {Norm::kOne, Norm::kTwo, Norm::kInfinity, Norm::kPower}) {
        this->check(1, {37}, norm, 0);
        this->check(3, {5, kGradientChunk + 16, 1, 1024}, norm, 0);
        this->check(2, {5, 2047}, norm, 1);
    }
}

using GradientOfFloat = Gradient<float>;
TEST_F(GradientOfFloat, MoreTensorsThanAnArgumentHolds) { check(1, std::vector<int64_t>(1003, 2), Norm::kTwo, 0); }

}  // namespace
}  // namespace dnnsuite::fused::kernels
