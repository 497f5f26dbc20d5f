// SPDX-License-Identifier: MIT
// random_numbers: uniform, normal, Bernoulli and exponential numbers of each model. On CUDA a Triton kernel draws them.
#include <string>

#include "fused/cpu/parallel.hpp"
#include "fused/cpu/random_kernel.hpp"

namespace dnnsuite::fused {
namespace {

Distribution distribution_of(const Checker& check, const std::string& name) {
    if (name == "uniform") return Distribution::kUniform;
    if (name == "normal") return Distribution::kNormal;
    if (name == "bernoulli") return Distribution::kBernoulli;
    STD_TORCH_CHECK(name == "exponential", check.op(),
                    ": distribution must be uniform, normal, bernoulli or exponential, not ", name);
    return Distribution::kExponential;
}

Tensor random_numbers_of(const Tensor& like, const Tensor& rng, const std::string& distribution, double first,
                         double second) {
    const Checker check("random_numbers");
    check.at_least(like, "like", 1);
    check.dtype(rng, "rng", ScalarType::Long);
    check.shape(rng, "rng", {like.size(0), 2});
    RandomArguments args{};
    args.dtype = check.floating(like, "like");
    args.distribution = distribution_of(check, distribution);
    args.first = first;
    args.second = second;
    Tensor y = new_tensor(like, like.sizes().data(), like.dim());
    if (y.numel() == 0) return y;
    args.count = elements_per_model(y);
    args.rows = cut_rows(y.size(0), (args.count + kRandomRow - 1) / kRandomRow * kRandomRow, kRandomRow);
    args.rng = static_cast<const int64_t*>(rng.data_ptr());
    args.rng_stride = rng.stride(0);
    args.rng_item_stride = rng.stride(1);
    args.y = y.data_ptr();
    run_rows(args, DNNSUITE_SELECT(random_numbers));
    return y;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { m.impl("random_numbers", TORCH_BOX(&random_numbers_of)); }

}  // namespace dnnsuite::fused
