// SPDX-License-Identifier: MIT
#include "fused/cpu/max_over_kernel.hpp"

#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

template <class T>
struct MaxOver : ::testing::Test {
    /// Few different numbers, so that there are ties everywhere, and some NaNs.
    void check(int64_t models, int64_t outer, int64_t count, int64_t inner, bool with_sign, size_t shift = 0) {
        const int64_t slices = models * outer;
        Both<T> x(slices * count * inner, shift), sign(models * inner), values(slices * inner);
        Both<int64_t> cuda_indices(slices * inner);
        std::vector<int64_t> cpu_indices(static_cast<size_t>(slices * inner));
        std::mt19937 engine(1);
        for (int64_t i = 0; i < x.count(); ++i) {
            const auto draw = engine() % 200;
            x.fill_at(i, draw == 0 ? NAN : static_cast<double>(draw % 7) - 3.0);
        }
        for (int64_t i = 0; i < sign.count(); ++i) sign.fill_at(i, i % 3 == 0 ? -1.0 : 1.0);
        MaxArguments args{};
        args.dtype = kDType<T>;
        args.models = models, args.outer = outer, args.count = count, args.inner = inner;
        MaxArguments cpu = for_cpu<T>(args);
        args.x = x.cuda(), args.values = values.cuda(), args.indices = cuda_indices.cuda();
        cpu.x = x.cpu(), cpu.values = values.cpu(), cpu.indices = cpu_indices.data();
        if (with_sign) args.sign = sign.cuda(), cpu.sign = sign.cpu();
        run_cuda({&values.room(), &cuda_indices.room()}, [&] { return max_over(args, nullptr); });
        baseline::max_over(cpu, 0, slices, scratch(inner / 2 + 1));
        values.expect_near("values", 0);
        for (size_t i = 0; i < cpu_indices.size(); ++i) ASSERT_EQ(cuda_indices.cuda()[i], cpu_indices[i]) << i;
    }
};
TYPED_TEST_SUITE(MaxOver, Numbers);

TYPED_TEST(MaxOver, IsTheCpus) {
    for (const bool with_sign : {false, true}) {
        this->check(1, 1, 1, 1, with_sign);
        this->check(3, 17, 40, 1, with_sign);
        this->check(2, 3, 1027, 1, with_sign, 1);
        this->check(3, 2, 5, 37, with_sign);
        this->check(1, 3, 100, 64, with_sign);
        this->check(1, 3, 100, 9, with_sign, 1);
        this->check(2, 0, 4, 3, with_sign);
    }
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
