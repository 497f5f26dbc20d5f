// SPDX-License-Identifier: MIT
// recurrence: tensors to arguments. A Backend has forward(args, like) and backward(args, like).
#pragma once

#include <string>
#include <tuple>

#include "fused/tensors.hpp"

namespace dnnsuite::fused {

template <class Backend>
struct RecurrenceOperators {
    static Cell cell_of(const Checker& check, const std::string& kind) {
        if (kind == "lstm") return Cell::kLstm;
        if (kind == "gru") return Cell::kGru;
        if (kind == "rnn_tanh") return Cell::kTanh;
        STD_TORCH_CHECK(kind == "rnn_relu", check.op(), ": kind must be lstm, gru, rnn_tanh or rnn_relu, not '", kind,
                        "'");
        return Cell::kRelu;
    }

    static void check_state(const Checker& check, const OptionalTensor& t, const char* name, const Tensor& like,
                            const RecurrenceArguments& args) {
        if (!t.has_value()) return;
        check.same_kind(*t, name, like);
        check.shape(*t, name, {args.models, args.rows, args.hidden});
    }

    /// Parts common to forward and backward; `steps` is [B, T, N, anything].
    static RecurrenceArguments arguments(const Checker& check, const Tensor& steps, const Tensor& weight,
                                         const OptionalTensor& h, const OptionalTensor& c,
                                         const OptionalTensor& lengths, const std::string& kind, bool reverse) {
        RecurrenceArguments args{};
        args.cell = cell_of(check, kind);
        STD_TORCH_CHECK(steps.dim() == 4, check.op(), ": a tensor of all steps is [B, T, N, ...], not ",
                        shape_text(steps));
        STD_TORCH_CHECK(weight.dim() == 3, check.op(), ": weight_hh must be [B, G * H, H], not ", shape_text(weight));
        args.dtype = check.floating(steps, "gates");
        args.models = steps.size(0);
        args.steps = steps.size(1);
        args.rows = steps.size(2);
        args.hidden = weight.size(2);
        args.reverse = reverse;
        check.same_kind(weight, "weight_hh", steps);
        check.shape(weight, "weight_hh", {args.models, gates_of(args.cell) * args.hidden, args.hidden});
        check_state(check, h, "h", steps, args);
        check_state(check, c, "c", steps, args);
        if (lengths.has_value()) {
            check.dtype(*lengths, "lengths", ScalarType::Long);
            check.shape(*lengths, "lengths", {args.models, args.rows});
            args.lengths = static_cast<const int64_t*>(lengths->data_ptr());
        }
        args.weight = weight.data_ptr();
        args.h0 = pointer(h);
        args.c0 = pointer(c);
        return args;
    }

    static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> forward(const Tensor& gates, const Tensor& weight_hh,
                                                                      OptionalTensor bias_hh, OptionalTensor h,
                                                                      OptionalTensor c, OptionalTensor lengths,
                                                                      std::string kind, bool reverse, bool keep) {
        const Checker check("recurrence");
        const Tensor given = packed(gates), weight = packed(weight_hh);
        const OptionalTensor bias = packed(bias_hh), h0 = packed(h), c0 = packed(c), ends = packed(lengths);
        RecurrenceArguments args = arguments(check, given, weight, h0, c0, ends, kind, reverse);
        const int64_t B = args.models, T = args.steps, N = args.rows, H = args.hidden;
        check.shape(gates, "gates", {B, T, N, gates_of(args.cell) * H});
        if (bias.has_value()) {
            check.same_kind(*bias, "bias_hh", gates);
            check.shape(*bias, "bias_hh", {B, gates_of(args.cell) * H});
        }
        const bool lstm = args.cell == Cell::kLstm, saves = keep && saved_of(args.cell) > 0;
        Tensor y = new_tensor(given, {B, T, N, H}), last_h = new_tensor(given, {B, N, H});
        Tensor last_c = lstm ? new_tensor(given, {B, N, H}) : new_tensor(given, {0});
        Tensor saved = saves ? new_tensor(given, {B, T, N, saved_of(args.cell) * H}) : new_tensor(given, {0});
        Tensor cells = keep && lstm ? new_tensor(given, {B, T, N, H}) : new_tensor(given, {0});
        args.gates = given.data_ptr();
        args.bias = pointer(bias);
        args.y = y.data_ptr();
        args.h = last_h.data_ptr();
        args.c = last_c.data_ptr();
        args.saved = saves ? saved.data_ptr() : nullptr;
        args.cells = keep && lstm ? cells.data_ptr() : nullptr;
        Backend::forward(args, given);
        return {y, last_h, last_c, saved, cells};
    }

    static std::tuple<Tensor, Tensor, Tensor, Tensor> backward(OptionalTensor grad_y, OptionalTensor grad_h,
                                                               OptionalTensor grad_c, const Tensor& weight_hh,
                                                               OptionalTensor h, OptionalTensor c,
                                                               OptionalTensor lengths, const Tensor& y,
                                                               const Tensor& saved, const Tensor& cells,
                                                               std::string kind, bool reverse) {
        const Checker check("recurrence_backward");
        const Tensor weight = packed(weight_hh), results = packed(y), kept = packed(saved), states = packed(cells);
        const OptionalTensor gy = packed(grad_y), gh = packed(grad_h), gc = packed(grad_c);
        const OptionalTensor h0 = packed(h), c0 = packed(c), ends = packed(lengths);
        RecurrenceArguments args = arguments(check, results, weight, h0, c0, ends, kind, reverse);
        const int64_t B = args.models, T = args.steps, N = args.rows, H = args.hidden, G = gates_of(args.cell) * H;
        const bool lstm = args.cell == Cell::kLstm;
        if (gy.has_value()) check.same_shape(*gy, "grad_y", y);
        check_state(check, gh, "grad_h", y, args);
        check_state(check, gc, "grad_c", y, args);
        if (saved_of(args.cell) > 0) check.shape(kept, "saved", {B, T, N, saved_of(args.cell) * H});
        if (lstm) check.shape(states, "cells", {B, T, N, H});
        Tensor dgates = new_tensor(results, {B, T, N, G});
        Tensor dhidden = args.cell == Cell::kGru ? new_tensor(results, {B, T, N, G}) : new_tensor(results, {0});
        Tensor dh = h.has_value() ? new_tensor(results, {B, N, H}) : new_tensor(results, {0});
        Tensor dc = c.has_value() ? new_tensor(results, {B, N, H}) : new_tensor(results, {0});
        args.y = results.data_ptr();
        args.saved = saved_of(args.cell) > 0 ? kept.data_ptr() : nullptr;
        args.cells = lstm ? states.data_ptr() : nullptr;
        args.grad_y = pointer(gy);
        args.grad_h = pointer(gh);
        args.grad_c = pointer(gc);
        args.dgates = dgates.data_ptr();
        args.dhidden = args.cell == Cell::kGru ? dhidden.data_ptr() : nullptr;
        args.dh0 = h.has_value() ? dh.data_ptr() : nullptr;
        args.dc0 = c.has_value() ? dc.data_ptr() : nullptr;
        Backend::backward(args, results);
        return {dgates, dhidden, dh, dc};
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("recurrence", TORCH_BOX(&forward));
        m.impl("recurrence_backward", TORCH_BOX(&backward));
    }
};

}  // namespace dnnsuite::fused
