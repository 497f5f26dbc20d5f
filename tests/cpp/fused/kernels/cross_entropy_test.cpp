// SPDX-License-Identifier: MIT
#include "fused/cpu/cross_entropy_kernel.hpp"

#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int64_t kIgnored = -100;

template <class T>
struct CrossEntropy : ::testing::Test {
    using A = Wide<T>;

    void check(int64_t models, int64_t rows, int64_t classes, double smoothing, bool mean, bool per_row, size_t shift) {
        const int64_t all = models * rows;
        Both<T> logits(all * classes, shift), dlogits(all * classes, shift);
        logits.random(1, 3.0);
        Both<A> row_loss(all), log_sum(all), loss(models), scale(all), grad(per_row ? all : models);
        grad.random(2);
        std::vector<int64_t> target;
        for (int64_t i = 0; i < all; ++i) target.push_back(i % rows == 1 ? kIgnored : (i * 7 + 3) % classes);
        CrossEntropyArguments args{};
        args.dtype = kDType<T>;
        args.rows = cut_rows(models, rows * classes, classes, 256);
        args.ignore_index = kIgnored;
        args.label_smoothing = smoothing;
        args.target = target.data();
        CrossEntropyArguments cpu = for_cpu<T>(args);
        const auto give = [&](CrossEntropyArguments& to, auto&& at) {
            to.logits = at(logits), to.row_loss = at(row_loss), to.log_sum = at(log_sum);
            to.scale = at(scale), to.saved_log_sum = at(log_sum), to.dlogits = at(dlogits);
        };
        give(args, [](auto& array) { return array.cuda(); });
        give(cpu, [](auto& array) { return array.cpu(); });

        run_cuda({&row_loss.room(), &log_sum.room()}, [&] { return cross_entropy_forward(args, nullptr); });
        run_cuda({&loss.room()}, [&] { return cross_entropy_reduce(args, mean, loss.cuda(), nullptr); });
        run_cuda({&scale.room()},
                 [&] { return cross_entropy_spread(args, mean, per_row, grad.cuda(), scale.cuda(), nullptr); });
        run_cuda({&dlogits.room()}, [&] { return cross_entropy_backward(args, nullptr); });

        baseline::cross_entropy_forward(cpu, 0, cpu.rows.tasks());
        for (int64_t b = 0; b < models; ++b) {
            const A counted = static_cast<A>(mean ? rows - (rows > 1 ? 1 : 0) : 1);
            loss.cpu()[b] = 0;
            for (int64_t i = b * rows; i < (b + 1) * rows; ++i) {
                loss.cpu()[b] += row_loss.cpu()[i];
                scale.cpu()[i] = grad.cpu()[per_row ? i : b] / counted;
            }
            loss.cpu()[b] /= counted;
        }
        baseline::cross_entropy_backward(cpu, 0, cpu.rows.tasks());
        row_loss.expect_near("row_loss", 20);
        log_sum.expect_near("log_sum", 20);
        loss.expect_near("loss", 40);
        scale.expect_near("scale", 2);
        dlogits.expect_near("dlogits", 20);
    }
};
TYPED_TEST_SUITE(CrossEntropy, Numbers);

TYPED_TEST(CrossEntropy, IsTheCpus) {
    this->check(1, 7, 19, 0.0, true, false, 0);
    this->check(3, 5, 16, 0.1, false, false, 0);
    this->check(1, 3, 3000, 0.1, true, false, 0);
    this->check(1, 2, 1500, 0.0, true, false, 1);
    this->check(1, 260, 2, 0.0, false, true, 0);
    this->check(3, 4, 2, 0.0, false, true, 0);
    this->check(2, 1, 1027, 0.2, true, false, 0);
}

TYPED_TEST(CrossEntropy, AWrongTargetIsNan) {
    Both<TypeParam> logits(2 * 5);
    logits.random(1);
    Both<Wide<TypeParam>> row_loss(2), log_sum(2);
    const int64_t target[2] = {5, -1};
    CrossEntropyArguments args{};
    args.dtype = kDType<TypeParam>;
    args.rows = cut_rows(1, 10, 5);
    args.ignore_index = kIgnored;
    args.logits = logits.cuda(), args.target = target;
    args.row_loss = row_loss.cuda(), args.log_sum = log_sum.cuda();
    run_cuda({&row_loss.room(), &log_sum.room()}, [&] { return cross_entropy_forward(args, nullptr); });
    EXPECT_TRUE(std::isnan(row_loss.cuda()[0]) && std::isnan(row_loss.cuda()[1]));
    EXPECT_FALSE(std::isnan(log_sum.cuda()[0]));
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
