// SPDX-License-Identifier: MIT
// recurrence_step_: tensors to arguments. A Backend has forward(args, like) and backward(args, like). All tensors are
// contiguous: those of all steps are made by the caller, and written to in place.
#pragma once

#include <string>

#include "fused/recurrence_operators.hpp"

namespace dnnsuite::fused {

template <class Backend>
struct RecurrenceStepOperators {
    /// A contiguous tensor's address, its kind and shape checked; null if there is none.
    static void* address(const Checker& check, const OptionalTensor& t, const char* name, const Tensor& like,
                         std::initializer_list<int64_t> sizes) {
        if (!t.has_value()) return nullptr;
        check.same_kind(*t, name, like);
        check.shape(*t, name, sizes);
        STD_TORCH_CHECK(t->is_contiguous(), check.op(), ": ", name, " must be contiguous");
        return t->data_ptr();
    }

    /// `like` is [B, T, N, gates * H].
    static RecurrenceStepArguments arguments(const Checker& check, const Tensor& like, const std::string& kind,
                                             const OptionalTensor& lengths, int64_t time) {
        RecurrenceStepArguments args{};
        args.cell = RecurrenceOperators<Backend>::cell_of(check, kind);
        STD_TORCH_CHECK(like.dim() == 4, check.op(), ": gates must be [B, T, N, G * H], not ", shape_text(like));
        args.dtype = check.floating(like, "gates");
        args.models = like.size(0);
        args.steps = like.size(1);
        args.rows = like.size(2);
        args.hidden = like.size(3) / gates_of(args.cell);
        args.time = time;
        STD_TORCH_CHECK(time >= 0 && time < args.steps, check.op(), ": time must be within [0, ", args.steps, "), not ",
                        time);
        if (lengths.has_value()) {
            check.dtype(*lengths, "lengths", ScalarType::Long);
            check.same_device(*lengths, "lengths", like);
            check.shape(*lengths, "lengths", {args.models, args.rows});
            STD_TORCH_CHECK(lengths->is_contiguous(), check.op(), ": lengths must be contiguous");
            args.lengths = static_cast<const int64_t*>(lengths->data_ptr());
        }
        return args;
    }

    static void forward(const Tensor& gates, OptionalTensor state_gates, OptionalTensor bias_hh, OptionalTensor lengths,
                        const Tensor& h, OptionalTensor c, const Tensor& y, OptionalTensor saved, OptionalTensor cells,
                        int64_t time, std::string kind) {
        const Checker check("recurrence_step_");
        RecurrenceStepArguments args = arguments(check, gates, kind, lengths, time);
        const int64_t B = args.models, T = args.steps, N = args.rows, H = args.hidden, G = gates_of(args.cell) * H;
        STD_TORCH_CHECK((args.cell == Cell::kLstm) == c.has_value(), check.op(), ": c goes with kind lstm, and only");
        args.gates = address(check, gates, "gates", gates, {B, T, N, G});
        args.state_gates = address(check, state_gates, "state_gates", gates, {B, N, G});
        args.bias = address(check, bias_hh, "bias_hh", gates, {B, G});
        args.h = address(check, h, "h", gates, {B, N, H});
        args.c = address(check, c, "c", gates, {B, N, H});
        args.y = address(check, y, "y", gates, {B, T, N, H});
        args.saved = address(check, saved, "saved", gates, {B, T, N, saved_of(args.cell) * H});
        args.cells = address(check, cells, "cells", gates, {B, T, N, H});
        Backend::forward(args, gates);
    }

    static void backward(OptionalTensor grad_y, OptionalTensor dh, OptionalTensor lengths, OptionalTensor h0,
                         OptionalTensor c0, const Tensor& y, OptionalTensor saved, OptionalTensor cells,
                         OptionalTensor past, OptionalTensor dc, const Tensor& dgates, OptionalTensor dstate_gates,
                         int64_t time, int64_t before, std::string kind) {
        const Checker check("recurrence_step_backward_");
        RecurrenceStepArguments args = arguments(check, dgates, kind, lengths, time);
        const int64_t B = args.models, T = args.steps, N = args.rows, H = args.hidden, G = gates_of(args.cell) * H;
        const bool lstm = args.cell == Cell::kLstm, gru = args.cell == Cell::kGru;
        STD_TORCH_CHECK(saved.has_value() == (saved_of(args.cell) > 0) && cells.has_value() == lstm &&
                            dc.has_value() == lstm && dstate_gates.has_value() == gru &&
                            (past.has_value() || !(gru || lengths.has_value())),
                        check.op(), ": kind ", kind, " takes other tensors");
        args.before = before;
        args.grad_y = address(check, grad_y, "grad_y", dgates, {B, T, N, H});
        args.dh = address(check, dh, "dh", dgates, {B, N, H});
        args.h0 = address(check, h0, "h0", dgates, {B, N, H});
        args.c0 = address(check, c0, "c0", dgates, {B, N, H});
        args.y = address(check, y, "y", dgates, {B, T, N, H});
        args.saved = address(check, saved, "saved", dgates, {B, T, N, saved_of(args.cell) * H});
        args.cells = address(check, cells, "cells", dgates, {B, T, N, H});
        args.past = address(check, past, "past", dgates, {B, N, H});
        args.dc = address(check, dc, "dc", dgates, {B, N, H});
        args.dgates = address(check, dgates, "dgates", dgates, {B, T, N, G});
        args.dstate_gates = address(check, dstate_gates, "dstate_gates", dgates, {B, T, N, G});
        Backend::backward(args, dgates);
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("recurrence_step_", TORCH_BOX(&forward));
        m.impl("recurrence_step_backward_", TORCH_BOX(&backward));
    }
};

}  // namespace dnnsuite::fused
