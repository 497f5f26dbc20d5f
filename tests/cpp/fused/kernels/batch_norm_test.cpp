// SPDX-License-Identifier: MIT
#include "fused/cpu/batch_norm_kernel.hpp"

#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

struct Shape {
    int64_t models, batch, channels, inner;
    bool last;  // channels last in memory
};
const Shape kShapes[] = {{1, 5, 7, 1, true},    {3, 4, 3, 25, false}, {2, 4, 40, 6, true},  {2, 6, 64, 4, true},
                         {3, 3, 4, 300, false}, {2, 4, 5, 4, false},  {1, 33, 16, 1, true}, {2, 2, 3, 2048, false}};

template <class Kernel>
void run_cpu(const BatchNormArguments& args, const Kernel& kernel) {
    using Step = BatchNormStep;
    for (int64_t model = 0; model < args.rows.models; ++model) {
        void* room = scratch(batch_norm_scratch(args));
        for (const Step step : {Step::kPrepare, Step::kSums, Step::kCombine, Step::kApply}) {
            const bool tasks = step == Step::kSums || step == Step::kApply;
            kernel(args, model, step, 0, tasks ? args.rows.tasks_per_model : 0, room);
        }
    }
}

template <class T>
struct BatchNorm : ::testing::Test {
    void check(const Shape& s, NormActivation kind, bool parameters, bool adds, bool training, size_t shift = 0) {
        const int64_t elements = s.batch * s.channels * s.inner, all = s.models * elements;
        const int64_t each = s.models * s.channels;
        Both<T> x(all, shift), residual(all), grad(all, shift), y(all), dx(all), dresidual(all);
        Both<T> weight(each), bias(each), mean(each), variance(each), dweight(each), dbias(each);
        Both<Wide<T>> statistics(3 * each), sums(2 * each);
        x.random(1, 2.0, 1.0), residual.random(2), grad.random(3), weight.random(4), bias.random(5), mean.random(6);
        for (int64_t i = 0; i < each; ++i) variance.fill_at(i, 0.5 + static_cast<double>(i % 3));
        BatchNormArguments args{};
        args.dtype = kDType<T>;
        args.activation = kind;
        args.slope = 0.2, args.eps = 1e-5;
        args.training = training;
        args.channels = s.channels;
        args.inner = s.last ? 1 : s.inner;
        args.planes = !s.last && s.inner >= 16;
        args.rows = cut_rows(s.models, elements, args.planes ? s.inner : s.channels * args.inner, 256);
        args.x_stride = args.grad_stride = args.residual_stride = args.out_stride = elements;
        args.x_step = args.grad_step = args.residual_step = args.out_step = s.channels * args.inner;
        BatchNormArguments cpu = for_cpu<T>(args);
        const auto give = [&](BatchNormArguments& to, auto&& at) {
            to.x = at(x), to.grad = at(grad), to.statistics = at(statistics);
            if (parameters) to.weight = at(weight), to.bias = at(bias);
            if (adds) to.residual = at(residual), to.dresidual = at(dresidual);
            if (!training) to.given_mean = at(mean), to.given_variance = at(variance);
            to.y = at(y), to.dx = at(dx), to.dweight = at(dweight), to.dbias = at(dbias);
        };
        give(args, [](auto& array) { return array.cuda(); });
        give(cpu, [](auto& array) { return array.cpu(); });

        run_cuda({&y.room(), &statistics.room()}, [&] { return batch_norm_forward(args, nullptr); });
        run_cuda({&dx.room(), &dresidual.room(), &dweight.room(), &dbias.room(), &sums.room()},
                 [&] { return batch_norm_backward(args, sums.cuda(), nullptr); });
        run_cpu(cpu, baseline::batch_norm_forward);
        run_cpu(cpu, baseline::batch_norm_backward);
        y.expect_near("y", 20);
        statistics.expect_near("statistics", 20);
        dx.expect_near("dx", 40);
        if (adds) dresidual.expect_near("dresidual", 20);
        dweight.expect_near("dweight", 60);
        dbias.expect_near("dbias", 60);
    }
};
TYPED_TEST_SUITE(BatchNorm, Numbers);

TYPED_TEST(BatchNorm, IsTheCpus) {
    using Kind = NormActivation;
    for (const Shape& s : kShapes) {
        this->check(s, Kind::kNone, true, false, true);
        this->check(s, Kind::kSilu, true, true, true, 1);
        this->check(s, Kind::kLeakyRelu, false, true, false);
    }
    // The kinks of these are numbers where the last place decides: smooth ones above show the sums.
    for (const Kind kind : {Kind::kRelu, Kind::kRelu6, Kind::kHardswish})
        this->check(kShapes[2], kind, true, false, true);
}

/// What the kernels write for models whose units (samples, or pixels) lie `in_turn`, in memory order of separate ones.
template <class T>
std::vector<std::vector<double>> results(const Shape& s, bool in_turn, bool wide_parameters) {
    const int64_t unit = s.channels * (s.last ? 1 : s.inner), units = s.batch * (s.last ? s.inner : 1);
    const int64_t all = s.models * units * unit, each = s.models * s.channels;
    const auto place = [&](int64_t i) {  // of number i of all models one after the other
        const int64_t model = i / (units * unit), rest = i % (units * unit);
        return in_turn ? (rest / unit * s.models + model) * unit + rest % unit : i;
    };
    const auto filled = [&](unsigned seed) {
        Both<T> from(all), to(all);
        from.random(seed);
        for (int64_t i = 0; i < all; ++i) to.cuda()[place(i)] = from.cuda()[i];
        return to;
    };
    Both<T> x = filled(1), residual = filled(2), grad = filled(3), y(all), dx(all), dresidual(all);
    Both<T> weight(each), bias(each), dweight(each), dbias(each);
    weight.random(4), bias.random(5);
    Both<Wide<T>> statistics(3 * each), sums(2 * each), wide_weight(each), wide_bias(each), dwide(each),
        dwide_bias(each);
    for (int64_t i = 0; i < each; ++i)
        wide_weight.fill_at(i, wide(weight.cuda()[i])), wide_bias.fill_at(i, wide(bias.cuda()[i]));
    BatchNormArguments args{};
    args.dtype = kDType<T>;
    args.activation = NormActivation::kSilu;
    args.eps = 1e-5, args.training = true;
    args.channels = s.channels, args.inner = unit / s.channels;
    args.rows = cut_rows(s.models, units * unit, unit, 256);
    args.x_step = args.residual_step = args.grad_step = args.out_step = in_turn ? s.models * unit : unit;
    args.x_stride = args.residual_stride = args.grad_stride = args.out_stride = in_turn ? unit : units * unit;
    args.wide_parameters = wide_parameters;
    args.x = x.cuda(), args.residual = residual.cuda(), args.grad = grad.cuda(), args.y = y.cuda();
    args.dx = dx.cuda(), args.dresidual = dresidual.cuda(), args.statistics = statistics.cuda();
    args.weight = wide_parameters ? static_cast<void*>(wide_weight.cuda()) : weight.cuda();
    args.bias = wide_parameters ? static_cast<void*>(wide_bias.cuda()) : bias.cuda();
    args.dweight = wide_parameters ? static_cast<void*>(dwide.cuda()) : dweight.cuda();
    args.dbias = wide_parameters ? static_cast<void*>(dwide_bias.cuda()) : dbias.cuda();
    run_cuda({&y.room(), &statistics.room()}, [&] { return batch_norm_forward(args, nullptr); });
    run_cuda({&dx.room(), &dresidual.room(), &dweight.room(), &dbias.room(), &dwide.room(), &dwide_bias.room(),
              &sums.room()},
             [&] { return batch_norm_backward(args, sums.cuda(), nullptr); });
    std::vector<std::vector<double>> found(5);
    for (int64_t i = 0; i < all; ++i) {
        found[0].push_back(wide(y.cuda()[place(i)]));
        found[1].push_back(wide(dx.cuda()[place(i)]));
        found[2].push_back(wide(dresidual.cuda()[place(i)]));
    }
    for (int64_t i = 0; i < each; ++i) {
        const auto gradient = [&](Both<T>& own, Both<Wide<T>>& sum) {
            return wide_parameters ? wide(narrow<T>(wide(sum.cuda()[i]))) : wide(own.cuda()[i]);
        };
        found[3].push_back(gradient(dweight, dwide));
        found[4].push_back(gradient(dbias, dwide_bias));
    }
    return found;
}

TYPED_TEST(BatchNorm, ModelsSideBySideAreModelsOneAfterTheOther) {
    for (const Shape& s : kShapes) EXPECT_EQ(results<TypeParam>(s, false, false), results<TypeParam>(s, true, false));
}

TYPED_TEST(BatchNorm, RunningStatisticsTakeTheBatchsIn) {
    using Sum = Wide<TypeParam>;
    constexpr int64_t kEach = 2 * 3;
    Both<TypeParam> x(2 * 5 * 3);
    Both<Sum> mean(kEach), variance(kEach), statistics(3 * kEach);
    x.random(1), mean.random(2), variance.random(3);
    BatchNormArguments args{};
    args.dtype = kDType<TypeParam>;
    args.eps = 1e-5, args.training = true, args.momentum = 0.25;
    args.channels = 3, args.inner = 1;
    args.rows = cut_rows(2, 15, 3, 256);
    args.x_step = args.out_step = 3, args.x_stride = args.out_stride = 15;
    args.x = x.cuda(), args.statistics = statistics.cuda();
    args.running_mean = mean.cuda(), args.running_variance = variance.cuda();
    Both<int64_t> tracked(2);
    tracked.cuda()[0] = 7, tracked.cuda()[1] = int64_t{1} << 40;
    args.tracked = tracked.cuda();
    run_cuda({&statistics.room(), &mean.room(), &variance.room(), &tracked.room()},
             [&] { return batch_norm_forward(args, nullptr); });
    for (int64_t i = 0; i < kEach; ++i) {
        const Sum batch_mean = statistics.cuda()[i], batch_variance = statistics.cuda()[2 * kEach + i];
        mean.cpu()[i] += Sum(0.25) * (batch_mean - mean.cpu()[i]);
        variance.cpu()[i] += Sum(0.25) * (batch_variance - variance.cpu()[i]);
    }
    EXPECT_EQ(tracked.cuda()[0], 8);
    EXPECT_EQ(tracked.cuda()[1], (int64_t{1} << 40) + 1);
    mean.expect_near("running mean", 4);
    variance.expect_near("running variance", 4);
}

TYPED_TEST(BatchNorm, ParametersMayHaveTheTypeOfSums) {
    for (const Shape& s : {kShapes[1], kShapes[3]})
        EXPECT_EQ(results<TypeParam>(s, false, false), results<TypeParam>(s, true, true));
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
