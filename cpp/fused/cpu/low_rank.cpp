// SPDX-License-Identifier: MIT
// low_rank: y + scale dropout(x) down^T up^T of each model. On CUDA it is a Triton kernel (ops/_triton_low_rank.py).
#include <tuple>
#include <vector>

#include "fused/cpu/low_rank_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

using Counts = std::vector<int64_t>;

/// Checked tensors of a call; x, y and grad [B, N, *], or [L, *] where `rows` says how many are each model's.
struct LowRankCall {
    LowRankArguments args{};
    Checker check;
    Tensor x, down, up, scale;
    int64_t models, total;
    Counts ranks, offsets{0};

    LowRankCall(const char* name, const Tensor& given_x, const Tensor& given_down, const Tensor& given_up,
                const Tensor& given_scale, Counts given_ranks, const Counts& rows, const OptionalTensor& p,
                const OptionalTensor& rng)
        : check(name), x(packed_or_shared(given_x)), down(packed(given_down)), up(packed(given_up)),
          scale(packed(given_scale)), models(down.size(0)), total(0), ranks(std::move(given_ranks)) {
        check.at_least(down, "down", 3);
        check.at_least(x, "x", rows.empty() ? 3 : 2);
        args.dtype = check.floating(down, "down");
        args.most = down.size(1);
        args.inputs = down.size(2);
        args.outputs = up.size(1);
        check.same_kind(up, "up", down);
        check.shape(up, "up", {models, args.outputs, args.most});
        check.same_kind(scale, "scale", down);
        check.shape(scale, "scale", {models});
        args.narrow = x.scalar_type() == ScalarType::BFloat16 && args.dtype == DType::kFloat32;
        if (!args.narrow) check.same_kind(x, "x", down);
        STD_TORCH_CHECK(static_cast<int64_t>(ranks.size()) == models, name, ": a rank for each of ", models,
                        " models, not ", ranks.size());
        for (int64_t rank : ranks)
            STD_TORCH_CHECK(rank >= 0 && rank <= args.most, name, ": ranks are 0 to ", args.most, ", not ", rank);
        STD_TORCH_CHECK(rows.empty() || static_cast<int64_t>(rows.size()) == models, name, ": rows of each of ", models,
                        " models, not ", rows.size());
        for (int64_t model = 0; model < models; ++model) {
            const int64_t count = rows.empty() ? x.size(1) : rows[static_cast<size_t>(model)];
            STD_TORCH_CHECK(count >= 0, name, ": rows must not be negative");
            offsets.push_back(total += count);
        }
        shaped(x, "x", args.inputs, rows);
        args.shared_x = rows.empty() && is_shared(x);
        args.ranks = ranks.data();
        args.offsets = offsets.data();
        args.x = x.data_ptr();
        args.down = down.data_ptr();
        args.up = up.data_ptr();
        args.scale = scale.data_ptr();
        if (models > 0) args.dropout = check.dropout(p, rng, down);
    }

    void shaped(const Tensor& t, const char* name, int64_t columns, const Counts& rows) const {
        if (rows.empty())
            check.shape(t, name, {models, x.size(1), columns});
        else
            check.shape(t, name, {total, columns});
        check.same_kind(t, name, x);
    }
};

std::tuple<Tensor, Tensor> low_rank(const Tensor& given_y, const Tensor& given_x, const Tensor& down, const Tensor& up,
                                    const Tensor& scale, Counts ranks, Counts rows, OptionalTensor p,
                                    OptionalTensor rng) {
    LowRankCall call("low_rank", given_x, down, up, scale, std::move(ranks), rows, p, rng);
    LowRankArguments& args = call.args;
    const Tensor y = packed_or_shared(given_y);
    call.shaped(y, "y", args.outputs, rows);
    Tensor out = new_like(y), hidden = new_tensor(call.down, {call.total, args.most});
    args.y = y.data_ptr();
    args.shared_y = rows.empty() && is_shared(y);
    args.out = out.data_ptr();
    args.hidden = hidden.data_ptr();
    std::vector<LowRankTask> tasks;
    for (int64_t model = 0; model < call.models; ++model) {
        const int64_t count = call.offsets[static_cast<size_t>(model) + 1] - call.offsets[static_cast<size_t>(model)];
        for (int64_t row = 0; row < count; row += kLowRankPart)
            tasks.push_back({model, row, std::min(row + kLowRankPart, count)});
    }
    const auto kernel = DNNSUITE_SELECT(low_rank);
    const auto count = static_cast<int64_t>(tasks.size());
    const int64_t per_task = count > 0 ? call.total * (args.inputs + args.outputs) / count : 0;
    run_tasks(count, per_task, low_rank_scratch(args), [&](int64_t begin, int64_t end, void* scratch) {
        for (int64_t task = begin; task < end; ++task) kernel(args, tasks[static_cast<size_t>(task)], scratch);
    });
    return {out, hidden};
}

/// dx is empty where it is not needed.
std::tuple<Tensor, Tensor, Tensor> low_rank_backward(const Tensor& given_grad, const Tensor& given_x,
                                                     const Tensor& down, const Tensor& up, const Tensor& scale,
                                                     const Tensor& hidden, Counts ranks, Counts rows, OptionalTensor p,
                                                     OptionalTensor rng, bool needs_x) {
    LowRankCall call("low_rank_backward", given_x, down, up, scale, std::move(ranks), rows, p, rng);
    LowRankArguments& args = call.args;
    const Tensor grad = packed(given_grad), kept = packed(hidden);
    call.shaped(grad, "grad", args.outputs, rows);
    call.check.same_kind(kept, "hidden", down);
    call.check.shape(kept, "hidden", {call.total, args.most});
    Tensor dx = needs_x ? new_like(call.x) : new_tensor(call.x, {0});
    Tensor ddown = new_like(call.down), dup = new_like(call.up);
    args.grad = grad.data_ptr();
    args.hidden = kept.data_ptr();
    args.dx = needs_x ? dx.data_ptr() : nullptr;
    args.ddown = ddown.data_ptr();
    args.dup = dup.data_ptr();
    const auto kernel = DNNSUITE_SELECT(low_rank_backward);
    const int64_t per_model = call.models > 0 ? call.total * (args.inputs + args.outputs) / call.models : 0;
    run_tasks(call.models, per_model, low_rank_scratch(args), [&](int64_t begin, int64_t end, void* scratch) {
        for (int64_t model = begin; model < end; ++model) kernel(args, model, scratch);
    });
    return {dx, ddown, dup};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("low_rank", TORCH_BOX(&low_rank));
    m.impl("low_rank_backward", TORCH_BOX(&low_rank_backward));
}

}  // namespace dnnsuite::fused
