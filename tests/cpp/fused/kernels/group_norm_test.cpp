// SPDX-License-Identifier: MIT
#include "fused/cpu/group_norm_kernel.hpp"

#include <vector>

#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

template <class T>
struct GroupNorm : ::testing::Test {
    void check(int64_t models, int64_t batch, int64_t channels, int64_t inner, int64_t groups, bool parameters,
               size_t shift = 0) {
        const int64_t all = models * batch * channels * inner, each = models * channels;
        Both<T> x(all, shift), grad(all), y(all), dx(all, shift), weight(each), bias(each), dweight(each), dbias(each);
        x.random(1, 2.0, 1.0), grad.random(2), weight.random(3), bias.random(4);
        GroupNormArguments args{};
        args.dtype = kDType<T>;
        args.models = models, args.batch = batch, args.channels = channels, args.inner = inner, args.groups = groups;
        args.eps = 1e-5;
        Both<Wide<T>> statistics(models * batch * groups * 2), sums(models * batch * 2 * channels);
        GroupNormArguments cpu = for_cpu<T>(args);
        cpu.samples = 1;
        std::vector<Wide<T>> scratch(static_cast<size_t>(group_norm_scratch(cpu)));
        const auto give = [&](GroupNormArguments& to, auto&& at) {
            to.x = at(x), to.grad = at(grad), to.y = at(y), to.dx = at(dx);
            to.dweight = at(dweight), to.dbias = at(dbias);
            if (parameters) to.weight = at(weight), to.bias = at(bias);
        };
        give(args, [](auto& array) { return array.cuda(); });
        give(cpu, [](auto& array) { return array.cpu(); });
        run_cuda({&y.room()}, [&] { return group_norm_forward(args, nullptr); });
        run_cuda({&dx.room(), &dweight.room(), &dbias.room(), &statistics.room()},
                 [&] { return group_norm_backward(args, statistics.cuda(), nullptr); });
        baseline::group_norm_forward(cpu, 0, models * batch, nullptr);
        baseline::group_norm_backward(cpu, 0, models * batch, sums.cpu(), scratch.data());
        for (int64_t i = 0; i < each; ++i) {
            dweight.cpu()[i] = dbias.cpu()[i] = 0;
            for (int64_t n = 0; n < batch; ++n) {
                const Wide<T>* own = sums.cpu() + (i / channels * batch + n) * 2 * channels + i % channels;
                dbias.cpu()[i] += own[0];
                dweight.cpu()[i] += own[channels];
            }
        }
        y.expect_near("y", 20);
        dx.expect_near("dx", 20);
        dweight.expect_near("dweight", 60);
        dbias.expect_near("dbias", 60);
    }
};
TYPED_TEST_SUITE(GroupNorm, Numbers);

TYPED_TEST(GroupNorm, IsTheCpus) {
    this->check(1, 3, 6, 20, 3, true);
    this->check(3, 2, 4, 16, 1, true);
    this->check(2, 2, 4, 33, 4, false);
    this->check(2, 2, 4, 33, 2, true, 1);
    this->check(1, 2, 2, 2048, 1, true);
    this->check(2, 0, 4, 16, 2, true);
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
