// SPDX-License-Identifier: MIT
#include "fused/cpu/layer_norm_kernel.hpp"

#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

struct Shape {
    int64_t models, rows, columns;
};
// Rows shorter and longer than a warp, no multiple of it, as long as shared memory holds once, and longer.
const Shape kShapes[] = {{1, 5, 37}, {3, 33, 64}, {2, 3, 600}, {1, 2, 8192}, {1, 1, 13004}, {3, 0, 8}};

template <class T>
struct LayerNorm : ::testing::Test {
    void check(const Shape& s, bool joins, bool drops, bool parameters, size_t shift) {
        const int64_t elements = s.rows * s.columns, all = s.models * elements, of_columns = s.models * s.columns;
        Both<T> x(all, shift), bias(of_columns, shift), residual(all), weight(of_columns), norm_bias(of_columns);
        Both<T> grad(all), y(all, shift), dx(all), dresidual(all);
        x.random(1, 2.0, 1.0), bias.random(2), residual.random(3), weight.random(4), norm_bias.random(5),
            grad.random(6);
        const Dropout dropout(s.models);
        LayerNormArguments args{};
        args.dtype = kDType<T>;
        args.rows = cut_rows(s.models, elements, s.columns, 256);
        args.eps = 1e-5;
        if (drops) args.dropout = dropout.args;
        const int64_t sums = s.models * args.rows.tasks_per_model * s.columns;
        Both<Wide<T>> weight_sums(sums), norm_bias_sums(sums), bias_sums(sums),
            statistics(layer_norm_room(args) * s.models * s.rows);
        LayerNormArguments cpu = for_cpu<T>(args);
        const auto give = [&](LayerNormArguments& to, auto&& at) {
            to.x = at(x), to.grad = at(grad), to.y = at(y), to.dx = at(dx);
            to.weight_sums = at(weight_sums), to.norm_bias_sums = at(norm_bias_sums), to.statistics = at(statistics);
            if (parameters) to.weight = at(weight), to.norm_bias = at(norm_bias);
            if (joins)
                to.bias = at(bias), to.residual = at(residual), to.dresidual = at(dresidual),
                to.bias_sums = at(bias_sums);
        };
        give(args, [](auto& array) { return array.cuda(); });
        give(cpu, [](auto& array) { return array.cpu(); });

        run_cuda({&x.room(), &y.room()}, [&] { return layer_norm_forward(args, nullptr); });
        run_cuda({&dx.room(), &dresidual.room(), &weight_sums.room(), &norm_bias_sums.room(), &bias_sums.room(),
                  &statistics.room()},
                 [&] { return layer_norm_backward(args, nullptr); });
        baseline::layer_norm_forward(cpu, 0, cpu.rows.tasks(), scratch(layer_norm_scratch(s.columns)));
        baseline::layer_norm_backward(cpu, 0, cpu.rows.tasks(), scratch(layer_norm_scratch(s.columns)));
        y.expect_near("y", 20);
        dx.expect_near("dx", 20);
        dresidual.expect_near("dresidual", 20);
        const double rounded = kUnit<T> / kUnit<Wide<T>>;  // dx is rounded before it is summed
        weight_sums.expect_near("weight_sums", 40);
        norm_bias_sums.expect_near("norm_bias_sums", 40);
        bias_sums.expect_near("bias_sums", 40 * rounded);
    }
};
TYPED_TEST_SUITE(LayerNorm, Numbers);

TYPED_TEST(LayerNorm, IsTheCpus) {
    for (const Shape& s : kShapes) {
        this->check(s, true, true, true, 0);
        if (s.columns > 1000) continue;
        this->check(s, false, false, false, 0);
        this->check(s, false, false, true, 1);
        this->check(s, true, false, true, 0);
    }
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
