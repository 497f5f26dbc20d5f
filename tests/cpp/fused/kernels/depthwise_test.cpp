// SPDX-License-Identifier: MIT
#include "fused/cpu/depthwise_kernel.hpp"

#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

Window window(int64_t input, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
    return {input, (input + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1, kernel, stride, padding, dilation};
}

template <class T>
struct Depthwise : ::testing::Test {
    void check(int64_t models, int64_t channels, const Window& height, const Window& width, bool biased, bool shared,
               size_t shift = 0) {
        constexpr int64_t kSamples = 2;
        const int64_t inputs = kSamples * height.input * width.input * channels;
        const int64_t outputs = kSamples * height.output * width.output * channels;
        DepthwiseArguments args{};
        args.dtype = kDType<T>;
        args.channels = channels;
        args.height = height, args.width = width;
        args.x_stride = shared ? 0 : inputs;
        args.grad_stride = outputs;
        Both<T> x(shared ? inputs : models * inputs, shift), weight(models * args.taps() * channels, shift);
        Both<T> bias(models * channels), grad(models * outputs), y(models * outputs), dx(models * inputs, shift);
        x.random(1), weight.random(2), bias.random(3), grad.random(4);
        const auto lines = [&](const Window& w, int64_t elements) {
            return cut_rows(models, elements, w.output * channels, 256);
        };
        const Window reversed = {width.output, width.input, 0, 0, 0, 0};
        const Rows of_y = lines(width, outputs), of_x = lines(reversed, inputs);
        Both<Wide<T>> sums(models * of_y.tasks_per_model * (args.taps() + 1) * channels);
        DepthwiseArguments cpu = for_cpu<T>(args);
        const auto give = [&](DepthwiseArguments& to, auto&& at) {
            to.x = at(x), to.weight = at(weight), to.grad = at(grad), to.sums = at(sums);
        };
        give(args, [](auto& array) { return array.cuda(); });
        give(cpu, [](auto& array) { return array.cpu(); });
        const auto step = [&](const Rows& rows, Both<T>& to, auto&& cuda_kernel, auto&& cpu_kernel) {
            args.rows = cpu.rows = rows;
            args.y = to.cuda(), cpu.y = to.cpu();
            run_cuda({&to.room(), &sums.room()}, [&] { return cuda_kernel(args, nullptr); });
            cpu_kernel(cpu, 0, rows.tasks(), scratch(depthwise_scratch(cpu)));
        };
        if (biased) args.bias = bias.cuda(), cpu.bias = bias.cpu();
        step(of_y, y, depthwise_forward, baseline::depthwise_forward);
        args.bias = cpu.bias = nullptr;  // the gradient has none
        step(of_x, dx, depthwise_backward_input, baseline::depthwise_backward_input);
        step(of_y, y, depthwise_backward_weight, baseline::depthwise_backward_weight);
        y.expect_near("y", 8);
        dx.expect_near("dx", 8);
        sums.expect_near("sums", 40);
    }
};
TYPED_TEST_SUITE(Depthwise, Numbers);

TYPED_TEST(Depthwise, IsTheCpus) {
    this->check(1, 18, window(5, 3, 1, 1, 1), window(6, 3, 1, 1, 1), true, false);
    this->check(3, 40, window(7, 3, 2, 1, 1), window(5, 5, 1, 2, 1), true, true);
    this->check(2, 64, window(8, 3, 1, 2, 2), window(8, 3, 2, 0, 1), false, false, 1);
    this->check(1, 3, window(4, 1, 1, 0, 1), window(4, 2, 3, 1, 1), false, false);
    this->check(2, 1, window(5, 3, 1, 1, 1), window(40, 5, 1, 2, 1), true, false, 1);
    this->check(2, 6, window(9, 3, 2, 1, 2), window(33, 7, 2, 3, 1), true, true);
    this->check(1, 15, window(3, 2, 4, 2, 1), window(7, 3, 1, 1, 2), false, false);
    this->check(2, 16, window(9, 7, 2, 3, 1), window(11, 5, 3, 2, 1), true, false);
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
