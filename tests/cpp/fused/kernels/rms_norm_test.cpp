// SPDX-License-Identifier: MIT
#include "fused/cpu/rms_norm_kernel.hpp"

#include "fused/kernels/arrays.hpp"
#include "fused/kernels/row.cuh"

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
        baseline::rms_norm_forward(cpu, 0, cpu.rows.tasks());
        baseline::rms_norm_backward(cpu, 0, cpu.rows.tasks());
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

/// The most lanes that want one bank at a time, of those whose words move together, when all lanes of a warp access
/// number j of their packs of T.
template <class T>
int64_t lanes_per_bank(int j) {
    constexpr int64_t kWords = static_cast<int64_t>(sizeof(Wide<T>)) / 4, kTogether = kWarp / kWords;
    int64_t most = 0;
    for (int64_t first = 0; first < kWarp; first += kTogether) {
        std::vector<int64_t> of_bank(32);
        for (int64_t lane = first; lane < first + kTogether; ++lane) {
            const int64_t word = kept_place<kPack<T>>(static_cast<unsigned>(lane * kPack<T>), j) * kWords;
            most = std::max(most, ++of_bank[static_cast<size_t>(word % 32)]);
        }
    }
    return most;
}

TYPED_TEST(RmsNorm, RowsAreKeptWithoutBankConflicts) {
    constexpr int kWide = kPack<TypeParam>;
    for (int j = 0; j < kWide; ++j) EXPECT_EQ(lanes_per_bank<TypeParam>(j), 1);
    for (const int64_t columns : {1, 31, 256, 600}) {
        const int64_t room = kept_numbers(columns, kWide);
        std::vector<bool> used(static_cast<size_t>(room));
        for (int64_t i = 0; i < columns; i += kWide) {
            for (int j = 0; j < kWide; ++j) {
                const int64_t place = kept_place<kWide>(static_cast<unsigned>(i), j);
                ASSERT_LT(place, room);
                EXPECT_FALSE(used[static_cast<size_t>(place)]);
                used[static_cast<size_t>(place)] = true;
            }
        }
    }
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
