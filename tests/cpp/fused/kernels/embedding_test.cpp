// SPDX-License-Identifier: MIT
#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

template <class T>
struct Embedding : ::testing::Test {
    void check(int64_t models, int64_t vocabulary, int64_t columns, int64_t count, bool shared, int64_t padding_idx,
               size_t shift = 0) {
        Both<T> weight(models * vocabulary * columns, shift), out(models * count * columns, shift);
        Both<T> grad(models * count * columns), dweight(models * vocabulary * columns);
        weight.random(1), grad.random(2);
        std::vector<int64_t> indices;
        for (int64_t i = 0; i < (shared ? count : models * count); ++i) indices.push_back(i * i % vocabulary);
        EmbeddingArguments args{};
        args.dtype = kDType<T>;
        args.models = models, args.vocabulary = vocabulary, args.columns = columns, args.count = count;
        args.index_stride = shared ? 0 : count;
        args.padding_idx = padding_idx;
        args.indices = indices.data();
        args.weight = weight.cuda(), args.out = out.cuda(), args.grad = grad.cuda(), args.dweight = dweight.cuda();
        run_cuda({&out.room()}, [&] { return embedding_forward(args, nullptr); });
        run_cuda({&dweight.room()}, [&] { return embedding_backward(args, nullptr); });

        std::fill_n(dweight.cpu(), dweight.count(), Wide<T>(0));
        for (int64_t i = 0; i < models * count; ++i) {
            const int64_t model = i / count, index = indices[static_cast<size_t>(shared ? i % count : i)];
            const int64_t row = (model * vocabulary + index) * columns;
            for (int64_t c = 0; c < columns; ++c) {
                out.cpu()[i * columns + c] = weight.cpu()[row + c];
                if (index != padding_idx) dweight.cpu()[row + c] += grad.cpu()[i * columns + c];
            }
        }
        out.expect_near("out", 0);
        dweight.expect_near("dweight", 4);
    }
};
TYPED_TEST_SUITE(Embedding, Numbers);

TYPED_TEST(Embedding, IsALoop) {
    this->check(1, 11, 5, 12, false, -1);
    this->check(3, 70, 64, 33, true, 4);
    this->check(2, 40, 300, 300, false, -1, 1);
    this->check(2, 9, 8, 0, false, -1);
}

TYPED_TEST(Embedding, AnIndexOutsideIsNan) {
    Both<TypeParam> weight(3 * 4), out(2 * 4);
    weight.random(1);
    const int64_t indices[2] = {3, -1};
    EmbeddingArguments args{};
    args.dtype = kDType<TypeParam>;
    args.models = 1, args.vocabulary = 3, args.columns = 4, args.count = 2;
    args.indices = indices;
    args.weight = weight.cuda(), args.out = out.cuda();
    run_cuda({&out.room()}, [&] { return embedding_forward(args, nullptr); });
    for (int64_t i = 0; i < 8; ++i) EXPECT_TRUE(std::isnan(wide(out.cuda()[i])));
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
