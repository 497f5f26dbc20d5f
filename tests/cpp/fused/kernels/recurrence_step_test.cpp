// SPDX-License-Identifier: MIT
// Time step by time step, with the products between them, against the CPU's kernel of all steps.
#include "fused/cpu/recurrence_kernel.hpp"

#include "fused/kernels/arrays.hpp"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int64_t kModels = 2, kSteps = 3, kRows = 3, kHidden = 37;  // not whole warps

/// c [B, N, columns] = a [B, N, depth] (rows `lda` apart, models `model` apart) times weight [B, G * H, H] or its
/// transpose.
template <class T>
void product(const T* a, int64_t model_stride, const T* weight, T* c, int64_t gates, bool transposed) {
    const int64_t depth = transposed ? kHidden : gates, columns = transposed ? gates : kHidden;
    for (int64_t b = 0; b < kModels; ++b) {
        for (int64_t r = 0; r < kRows * columns; ++r) {
            double sum = 0.0;
            for (int64_t k = 0; k < depth; ++k) {
                const int64_t row = transposed ? r % columns : k, column = transposed ? k : r % columns;
                sum += wide(a[b * model_stride + r / columns * depth + k]) *
                       wide(weight[(b * gates + row) * kHidden + column]);
            }
            c[b * kRows * columns + r] = narrow<T>(sum);
        }
    }
}

template <class T>
struct RecurrenceStep : ::testing::Test {
    static constexpr int64_t kAll = kModels * kSteps * kRows * kHidden, kState = kModels * kRows * kHidden;

    void check(Cell cell, bool reverse, bool ragged) {
        const int64_t G = gates_of(cell), S = saved_of(cell), width = G * kHidden;
        const bool lstm = cell == Cell::kLstm, gru = cell == Cell::kGru;
        Both<T> gates(kAll * G), weight(kModels * width * kHidden), bias(kModels * width), h0(kState), c0(kState);
        Both<T> grad_y(kAll), grad_h(kState), grad_c(kState);
        gates.random(1), weight.random(2, 0.2), bias.random(3), h0.random(4), c0.random(5);
        grad_y.random(6), grad_h.random(7), grad_c.random(8);
        Both<T> h(kState), c(kState), y(kAll), saved(kAll * S), cells(kAll), dgates(kAll * G), dstate(kAll * G);
        Both<T> dh(kState), dc(kState), past(kState), state_gates(kState * G);
        const std::vector<int64_t> lengths = {3, 1, 2, 0, 3, 3};

        RecurrenceStepArguments args{};
        args.dtype = kDType<T>;
        args.cell = cell;
        args.models = kModels, args.steps = kSteps, args.rows = kRows, args.hidden = kHidden;
        args.lengths = ragged ? lengths.data() : nullptr;
        args.gates = gates.cuda(), args.bias = gru ? bias.cuda() : nullptr, args.state_gates = state_gates.cuda();
        args.h = h.cuda(), args.y = y.cuda(), args.saved = S > 0 ? saved.cuda() : nullptr;
        args.c = lstm ? c.cuda() : nullptr, args.cells = lstm ? cells.cuda() : nullptr;
        std::copy_n(h0.cuda(), kState, h.cuda()), std::copy_n(c0.cuda(), kState, c.cuda());
        const auto time_of = [&](int64_t s) { return reverse ? kSteps - 1 - s : s; };
        for (int64_t s = 0; s < kSteps; ++s) {
            args.time = time_of(s);
            product(h.cuda(), kRows * kHidden, weight.cuda(), state_gates.cuda(), width, true);
            run_cuda({&h.room(), &c.room(), &y.room(), &saved.room(), &cells.room()},
                     [&] { return recurrence_step_forward(args, nullptr); });
        }
        args.h0 = h0.cuda(), args.c0 = c0.cuda(), args.grad_y = grad_y.cuda(), args.dh = dh.cuda();
        args.dgates = dgates.cuda(), args.dstate_gates = gru ? dstate.cuda() : nullptr;
        args.past = gru || ragged ? past.cuda() : nullptr, args.dc = lstm ? dc.cuda() : nullptr;
        std::copy_n(grad_h.cuda(), kState, dh.cuda()), std::copy_n(grad_c.cuda(), kState, dc.cuda());
        std::fill_n(past.cuda(), kState, narrow<T>(0.0));
        for (int64_t s = kSteps - 1; s >= 0; --s) {
            args.time = time_of(s), args.before = s > 0 ? time_of(s - 1) : -1;
            run_cuda({&past.room(), &dc.room(), &dgates.room(), &dstate.room()},
                     [&] { return recurrence_step_backward(args, nullptr); });
            const T* own = (gru ? dstate : dgates).cuda() + args.time * kRows * width;
            product(own, kSteps * kRows * width, weight.cuda(), dh.cuda(), width, false);
        }
        if (args.past != nullptr)
            for (int64_t i = 0; i < kState; ++i) dh.cuda()[i] = narrow<T>(wide(dh.cuda()[i]) + wide(past.cuda()[i]));

        RecurrenceArguments cpu{};
        cpu.dtype = kDType<Wide<T>>;
        cpu.cell = cell;
        cpu.models = kModels, cpu.steps = kSteps, cpu.rows = kRows, cpu.hidden = kHidden, cpu.reverse = reverse;
        cpu.lengths = args.lengths;
        cpu.gates = gates.cpu(), cpu.weight = weight.cpu(), cpu.bias = gru ? bias.cpu() : nullptr;
        cpu.h0 = h0.cpu(), cpu.c0 = c0.cpu(), cpu.h = h.cpu(), cpu.c = c.cpu(), cpu.y = y.cpu();
        cpu.saved = S > 0 ? saved.cpu() : nullptr, cpu.cells = lstm ? cells.cpu() : nullptr;
        cpu.grad_y = grad_y.cpu(), cpu.grad_h = grad_h.cpu(), cpu.grad_c = grad_c.cpu();
        cpu.dgates = dgates.cpu(), cpu.dhidden = gru ? dstate.cpu() : nullptr;
        cpu.dh0 = dh.cpu(), cpu.dc0 = lstm ? dc.cpu() : nullptr;
        std::vector<Wide<T>> packed(
            static_cast<size_t>(kModels * recurrence_columns(width) * recurrence_columns(width)));
        cpu.packed = packed.data();
        for (const bool backward : {false, true}) {
            baseline::recurrence_pack(cpu, backward, 0, kModels);
            (backward ? baseline::recurrence_backward : baseline::recurrence_forward)(cpu, 0, kModels,
                                                                                      scratch(recurrence_scratch(cpu)));
        }
        y.expect_near("y", 20);
        h.expect_near("h", 20);
        dgates.expect_near("dgates", 40);
        dh.expect_near("dh", 40);
        if (gru) dstate.expect_near("dstate_gates", 40);
        if (!lstm) return;
        c.expect_near("c", 20);
        dc.expect_near("dc", 40);
    }
};
TYPED_TEST_SUITE(RecurrenceStep, Numbers);

TYPED_TEST(RecurrenceStep, IsAStepOfTheCpus) {
    for (const Cell cell : {Cell::kLstm, Cell::kGru, Cell::kTanh, Cell::kRelu}) {
        for (const bool reverse : {false, true}) {
            for (const bool ragged : {false, true}) this->check(cell, reverse, ragged);
        }
    }
}

TYPED_TEST(RecurrenceStep, WithoutAStateBeforeItIsAStepFromZero) {
    Both<TypeParam> gates(4 * kHidden), zeros(4 * kHidden), h(kHidden), c(kHidden), y(kHidden), other(kHidden);
    gates.random(1), zeros.random(2, 0.0);
    RecurrenceStepArguments args{};
    args.dtype = kDType<TypeParam>;
    args.cell = Cell::kLstm;
    args.models = args.steps = args.rows = 1, args.hidden = kHidden;
    args.gates = gates.cuda(), args.h = h.cuda(), args.c = c.cuda(), args.y = y.cuda();
    std::fill_n(c.cuda(), kHidden, narrow<TypeParam>(0.0));
    run_cuda({&y.room(), &h.room(), &c.room()}, [&] { return recurrence_step_forward(args, nullptr); });
    std::fill_n(c.cuda(), kHidden, narrow<TypeParam>(0.0));
    args.state_gates = zeros.cuda(), args.y = other.cuda();
    run_cuda({&other.room(), &h.room(), &c.room()}, [&] { return recurrence_step_forward(args, nullptr); });
    EXPECT_EQ(y.room().content(), other.room().content());
}

}  // namespace
}  // namespace dnnsuite::fused::kernels
