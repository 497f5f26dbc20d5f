// SPDX-License-Identifier: MIT
// One time step of a recurrent layer, one number of the state after the other, where another library has multiplied the
// state and its weights. A step reads and writes its numbers alone, so the order of the numbers is of no concern.
#pragma once

#include <type_traits>

#include "fused/arguments.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Place of number `index` of the state [B, N, H] in the arrays of all steps. T: as it is kept, A: as it is computed;
/// Memory has load(const T*, i) and store(T*, i, A).
template <class T, class A, class Memory>
struct StepPlace {
    const RecurrenceStepArguments& args;
    int64_t index, row, column, model;  // row: among those of all models

    DNNSUITE_HD StepPlace(const RecurrenceStepArguments& all, int64_t at)
        : args(all), index(at), row(quotient(at, all.hidden)), column(at - row * all.hidden),
          model(quotient(row, all.rows)) {}

    /// Place in [B, T, N, columns * H] of the first of this number's columns.
    DNNSUITE_HD int64_t step(int64_t time, int64_t columns) const {
        return (row + (model * (args.steps - 1) + time) * args.rows) * columns * args.hidden + column;
    }
    DNNSUITE_HD bool active(int64_t time) const { return args.lengths == nullptr || time < args.lengths[row]; }
    DNNSUITE_HD A read(const void* from, int64_t at) const {
        return from == nullptr ? A(0) : Memory::load(static_cast<const T*>(from), at);
    }
    DNNSUITE_HD void write(void* to, int64_t at, A value) const {
        if (to != nullptr) Memory::store(static_cast<T*>(to), at, value);
    }
    /// Terms of a gate from the input and from the state.
    DNNSUITE_HD A given(Cell cell, int64_t gate) const {
        return read(args.gates, step(args.time, gates_of(cell)) + gate * args.hidden);
    }
    DNNSUITE_HD A own(Cell cell, int64_t gate) const {
        const int64_t columns = gates_of(cell) * args.hidden, place = gate * args.hidden + column;
        return read(args.state_gates, row * columns + place) + read(args.bias, model * columns + place);
    }
    /// The number of `from` [B, T, N, H] before this step, else that of the initial state, or zero.
    DNNSUITE_HD A before(const void* from, const void* initial) const {
        const bool begins = args.before < 0 || args.before >= args.steps || !active(args.before);
        return begins ? read(initial, index) : read(from, step(args.before, 1));
    }
};

template <Cell cell, class T, class A, class Memory>
DNNSUITE_HD void recurrence_step(const RecurrenceStepArguments& args, int64_t index) {
    const StepPlace<T, A, Memory> at(args, index);
    const int64_t to = at.step(args.time, 1), kept = at.step(args.time, saved_of(cell));
    if (!at.active(args.time)) return at.write(args.y, to, A(0));
    const auto keep = [&](int64_t place, A value) { at.write(args.saved, kept + place * args.hidden, value); };
    A h = A(0);
    if constexpr (cell == Cell::kLstm) {
        const auto s = lstm_step<A>(at.given(cell, 0) + at.own(cell, 0), at.given(cell, 1) + at.own(cell, 1),
                                    at.given(cell, 2) + at.own(cell, 2), at.given(cell, 3) + at.own(cell, 3),
                                    at.read(args.c, index));
        keep(0, s.i), keep(1, s.f), keep(2, s.g), keep(3, s.o);
        at.write(args.c, index, s.c);
        at.write(args.cells, to, s.c);
        h = s.h;
    } else if constexpr (cell == Cell::kGru) {
        const A hn = at.own(cell, 2);
        const auto s = gru_step<A>(at.given(cell, 0), at.given(cell, 1), at.given(cell, 2), at.own(cell, 0),
                                   at.own(cell, 1), hn, at.read(args.h, index));
        keep(0, s.r), keep(1, s.z), keep(2, s.n), keep(3, hn);
        h = s.h;
    } else {
        h = plain_step<cell, A>(at.given(cell, 0) + at.own(cell, 0));
    }
    at.write(args.h, index, h);
    at.write(args.y, to, h);
}

template <Cell cell, class T, class A, class Memory>
DNNSUITE_HD void recurrence_step_gradient(const RecurrenceStepArguments& args, int64_t index) {
    const StepPlace<T, A, Memory> at(args, index);
    const int64_t from = at.step(args.time, 1), wide = at.step(args.time, gates_of(cell));
    const auto give = [&](int64_t gate, A value, A own) {
        at.write(args.dgates, wide + gate * args.hidden, value);
        at.write(args.dstate_gates, wide + gate * args.hidden, own);
    };
    const A through = at.read(args.dh, index) + at.read(args.past, index);
    if (!at.active(args.time)) {  // the state went past this step
        for (int64_t gate = 0; gate < gates_of(cell); ++gate) give(gate, A(0), A(0));
        return at.write(args.past, index, through);
    }
    const A dh = through + at.read(args.grad_y, from);
    const auto kept = [&](int64_t place) {
        return at.read(args.saved, at.step(args.time, saved_of(cell)) + place * args.hidden);
    };
    A past = A(0);
    if constexpr (cell == Cell::kLstm) {
        const LstmStep<A> s{kept(0), kept(1), kept(2), kept(3), at.read(args.cells, from), A(0)};
        const auto d = lstm_gradient<A>(s, at.before(args.cells, args.c0), dh, at.read(args.dc, index));
        give(0, d.i, d.i), give(1, d.f, d.f), give(2, d.g, d.g), give(3, d.o, d.o);
        at.write(args.dc, index, d.c);
    } else if constexpr (cell == Cell::kGru) {
        const auto d = gru_gradient<A>(kept(0), kept(1), kept(2), kept(3), at.before(args.y, args.h0), dh);
        give(0, d.r, d.r), give(1, d.z, d.z), give(2, d.xn, d.hn);
        past = d.h;
    } else {
        const A d = plain_gradient<cell, A>(at.read(args.y, from), dh);
        give(0, d, d);
    }
    at.write(args.past, index, past);
}

/// Calls function(constant of the cell).
template <class Function>
void by_cell(Cell cell, const Function& function) {
    switch (cell) {
        case Cell::kLstm: return function(std::integral_constant<Cell, Cell::kLstm>());
        case Cell::kGru: return function(std::integral_constant<Cell, Cell::kGru>());
        case Cell::kTanh: return function(std::integral_constant<Cell, Cell::kTanh>());
        case Cell::kRelu: return function(std::integral_constant<Cell, Cell::kRelu>());
    }
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
