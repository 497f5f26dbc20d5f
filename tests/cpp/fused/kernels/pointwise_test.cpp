// SPDX-License-Identifier: MIT
#include "fused/cpu/pointwise_kernel.hpp"

#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

struct Shape {
    int64_t models, rows, columns;
};
const Shape kShapes[] = {{1, 5, 37}, {3, 33, 64}, {3, 1, 128}, {2, 3, 600}, {1, 1, 4101}, {3, 0, 8}};

template <class T>
struct Pointwise : ::testing::Test {
    void check(const Shape& s, Activation kind, bool biased, bool drops, size_t shift) {
        const int64_t elements = s.rows * s.columns, all = s.models * elements;
        Both<T> x(all, shift), bias(s.models * s.columns, shift), residual(all), grad(all), y(all), dx(all, shift);
        x.random(1, 2.0), bias.random(2), residual.random(3), grad.random(4);
        const Dropout dropout(s.models);
        PointwiseArguments args{};
        args.dtype = kDType<T>;
        args.activation = kind;
        args.rows = cut_rows(s.models, elements, s.columns, 256);
        if (drops) args.dropout = dropout.args;
        Both<Wide<T>> sums(s.models * args.rows.tasks_per_model * s.columns);
        PointwiseArguments cpu = for_cpu<T>(args);
        const auto give = [&](PointwiseArguments& to, bool backward, auto&& at) {
            to.x = at(x), to.grad = at(grad), to.y = at(backward ? dx : y);
            if (biased) to.bias = at(bias);
            if (kind == Activation::kNone) to.residual = at(residual);
        };
        for (const bool backward : {false, true}) {
            give(args, backward, [](auto& array) { return array.cuda(); });
            give(cpu, backward, [](auto& array) { return array.cpu(); });
            if (backward && biased) args.bias_sums = sums.cuda(), cpu.bias_sums = sums.cpu();
            run_cuda({&y.room(), &dx.room(), &sums.room()},
                     [&] { return backward ? pointwise_backward(args, nullptr) : pointwise_forward(args, nullptr); });
            auto* kernel = backward ? baseline::pointwise_backward : baseline::pointwise_forward;
            kernel(cpu, 0, cpu.rows.tasks(), scratch(pointwise_scratch(s.columns)));
        }
        y.expect_near("y", 8);
        dx.expect_near("dx", 8);
        if (biased) sums.expect_near("sums", 40 * kUnit<T> / kUnit<Wide<T>>);  // of rounded numbers
    }
};
TYPED_TEST_SUITE(Pointwise, Numbers);

TYPED_TEST(Pointwise, IsTheCpus) {
    for (const Shape& s : kShapes) {
        for (const Activation kind : {Activation::kNone, Activation::kRelu, Activation::kGelu})
            this->check(s, kind, true, true, 0);
        this->check(s, Activation::kGelu, false, true, 1);
        this->check(s, Activation::kRelu, true, false, 0);
        this->check(s, Activation::kNone, false, false, 1);
    }
}

TYPED_TEST(Pointwise, TaskSumsAreAdded) {
    using T = TypeParam;
    const Rows rows = cut_rows(3, 50 * 37, 37, 256);
    Both<Wide<T>> sums(3 * rows.tasks_per_model * 37);
    sums.random(1);
    Both<T> total(3 * 37);
    run_cuda({&total.room()}, [&] { return add_task_sums(sums.cuda(), total.cuda(), rows, kDType<T>, nullptr); });
    for (int64_t i = 0; i < total.count(); ++i) {
        Wide<T> sum = 0;
        for (int64_t t = 0; t < rows.tasks_per_model; ++t)
            sum += sums.cpu()[(i / 37 * rows.tasks_per_model + t) * 37 + i % 37];
        total.cpu()[i] = sum;
    }
    total.expect_near("total", 1);
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
