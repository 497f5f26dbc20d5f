// SPDX-License-Identifier: MIT
#include "fused/group_norm_operators.hpp"

#include "fused/cpu/cache.hpp"
#include "fused/cpu/group_norm_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

/// sums [B, tasks, 2, C] added over the tasks in order.
template <class T>
void add_samples(const GroupNormArguments& args, const T* __restrict sums) {
    T* __restrict dbias = static_cast<T*>(args.dbias), * __restrict dweight = static_cast<T*>(args.dweight);
    for (int64_t model = 0; model < args.models; ++model) {
        for (int64_t c = 0; c < args.channels; ++c) dbias[c] = dweight[c] = T(0);
        for (int64_t t = 0; t < args.tasks_per_model(); ++t, sums += 2 * args.channels) {
            for (int64_t c = 0; c < args.channels; ++c) {
                dbias[c] += sums[c];
                dweight[c] += sums[args.channels + c];
            }
        }
        dbias += args.channels;
        dweight += args.channels;
    }
}

struct GroupNormBackend {
    static constexpr bool kChannelsLast = true;

    static GroupNormArguments placed(GroupNormArguments args, int64_t tensors) {
        const int64_t elements = args.models * args.batch * args.channels * args.inner;
        // What a pass reads and writes: x and y, or x, grad and dx.
        args.streams = leaves_caches(tensors * elements * (args.dtype == DType::kFloat64 ? 8 : 4));
        return args;
    }
    static void forward(const GroupNormArguments& given, const Tensor&) {
        const GroupNormArguments args = placed(given, 2);
        const auto kernel = DNNSUITE_SELECT(group_norm_forward);
        run_tasks(args.models * args.batch, args.channels * args.inner, group_norm_scratch(args),
                  [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
    }
    static void backward(const GroupNormArguments& given, const Tensor& like) {
        constexpr int64_t kTask = 16384;  // elements: small samples share the sums, which would be as large as x
        GroupNormArguments args = placed(given, 3);
        const int64_t sample = args.channels * args.inner;
        args.samples = sample < kTask ? kTask / (sample > 0 ? sample : 1) : 1;
        const auto kernel = DNNSUITE_SELECT(group_norm_backward);
        const Tensor sums = new_accumulator(like, {args.models, args.tasks_per_model(), 2, args.channels});
        void* room = sums.data_ptr();
        run_tasks(args.models * args.tasks_per_model(), args.samples * sample, group_norm_scratch(args),
                  [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, room, scratch); });
        if (args.dtype == DType::kFloat64)
            add_samples(args, static_cast<const double*>(room));
        else
            add_samples(args, static_cast<const float*>(room));
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { GroupNormOperators<GroupNormBackend>::implement(m); }

}  // namespace dnnsuite::fused
