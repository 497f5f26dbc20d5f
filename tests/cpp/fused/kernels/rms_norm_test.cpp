// SPDX-License-Identifier: MIT
#include "fused/cpu/rms_norm_kernel.hpp"

#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

struct Shape {
    int64_t models, rows, columns;
};
// Rows shorter and longer than a warp's packs, whole packs and not, and longer than shared memory.
const Shape kShapes[] = {{1, 5, 37}, {3, 33, 64}, {2, 3, 600}, {1, 1, 13004}, {3, 0, 8}};

template <class T>
struct RmsNorm : ::testing::Test {
    void check(const Shape& s, bool weighted, size_t shift) {
        const int64_t elements = s.rows * s.columns, all = s.models * elements;
        Both<T> x(all, shift), weight(s.models * s.columns, shift), grad(all), y(all, shift), dx(all);
        x.random(1, 2.0, 1.0), weight.random(2), grad.random(3);
        RmsNormArguments args{};
        args.dtype = kDType<T>;
        args.rows = cut_rows(s.models, elements, s.columns, 256);
        args.eps = 1e-5;
        Both<Wide<T>> sums(s.models * args.rows.tasks_per_model * s.columns), roots(s.models * s.rows);
        RmsNormArguments cpu = for_cpu<T>(args);
        const auto give = [&](RmsNormArguments& to, auto&& at) {
            to.x = at(x), to.grad = at(grad), to.y = at(y), to.dx = at(dx);
            if (weighted) to.weight = at(weight), to.weight_sums = at(sums);
        };
        give(args, [](auto& array) { return array.cuda(); });
        give(cpu, [](auto& array) { return array.cpu(); });
        run_cuda({&y.room()}, [&] { return rms_norm_forward(args, nullptr); });
        run_cuda({&dx.room(), &sums.room(), &roots.room()},
                 [&] { return rms_norm_backward(args, roots.cuda(), nullptr); });
        generic::rms_norm_forward(cpu, 0, cpu.rows.tasks());
        generic::rms_norm_backward(cpu, 0, cpu.rows.tasks());
        y.expect_near("y", 20);
        dx.expect_near("dx", 20);
        sums.expect_near("sums", 40);
    }
};
TYPED_TEST_SUITE(RmsNorm, Numbers);

TYPED_TEST(RmsNorm, IsTheCpus) {
    for (const Shape& s : kShapes) {
        this->check(s, true, 0);
        if (s.columns > 1000) continue;
        this->check(s, false, 0);
        this->check(s, true, 1);
    }
}

TYPED_TEST(RmsNorm, IsTheSameInPacksAndOneByOne) {
    Both<TypeParam> x(600), shifted(600, 1), y(600), of_shifted(600, 1);
    x.random(1), shifted.random(1);
    RmsNormArguments args{};
    args.dtype = kDType<TypeParam>;
    args.rows = cut_rows(1, 600, 600);
    args.x = x.cuda(), args.y = y.cuda();
    run_cuda({&y.room()}, [&] { return rms_norm_forward(args, nullptr); });
    args.x = shifted.cuda(), args.y = of_shifted.cuda();
    run_cuda({&of_shifted.room()}, [&] { return rms_norm_forward(args, nullptr); });
    EXPECT_EQ(y.room().content(), of_shifted.room().content());
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
