# SPDX-License-Identifier: MIT
"""Plan of one group's step, made once and used again: a step is then one call whatever the number of tensors."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import ops
from .._torch import dispatch_modes, hidden_from_modes
from ..errors import InvalidArgument
from ..ops.memory_order import memory_order, way_back
from ..ops.optimizer import UpdateRule
from ..ops.shared import Maybe
from ._group import FLAGS, Group

Hyper = Mapping[str, Tensor]
Hypers = Sequence[Hyper]
Groups = Sequence[Group]
Tensors = Sequence[Tensor]
Flags = tuple[bool, bool, bool]

_GET = dict.get


class StepPlan:
    """Parameters, states and scalars of `params`, ready for the operator, as long as none of them is replaced."""

    def __init__(self, rule: str, params: Sequence[Tensor], state: Any) -> None:
        self.rule, self.params, self.state = rule, list(params), state
        rows = [state[p] for p in self.params]
        with hidden_from_modes():  # a recorder would take what is done once for a part of every step
            _put_in_order(self.params, rows, ops.RULES[rule].states)
        self.changes = getattr(state, "changes", 0)
        self.takes = ops.RULES[rule]
        names = (*self.takes.states, *self.takes.scalars)
        self.slots = [(rows, [name] * len(rows), [row[name] for row in rows]) for name in names]
        self.pointers = self._pointers()  # `.data = ...` gives a tensor another memory
        with hidden_from_modes():
            self.batches = [
                _Batch(self.takes, [self.params[i] for i in places], [rows[i] for i in places], places)
                for places in _alike(self.params)
            ]

    def fits(self, rule: str, params: Sequence[Tensor], state: Any) -> bool:
        """Return True if rule, tensors and addresses are those the plan was built with."""
        return (
            rule == self.rule
            and state is self.state
            and getattr(state, "changes", 0) == self.changes
            and len(params) == len(self.params)
            and all(map(operator.is_, params, self.params))
            and all(all(map(operator.is_, map(_GET, *where), tensors)) for *where, tensors in self.slots)
            and self.follow_memory()
        )

    def follow_memory(self) -> bool:
        """Point to the memory that `.data = ...` has given parameters and states; return False where views of them
        point to it, too. Recordings hold the plan's tensors, which stay the same."""
        pointers = self._pointers()
        if pointers != self.pointers:
            if not all(batch.moves for batch in self.batches):
                return False
            for batch in self.batches:
                batch.follow_memory(self.rule)
            self.pointers = pointers
        return True

    def _pointers(self) -> list[Any]:
        orders = [p.is_contiguous() or p.stride() for p in self.params if p.dim() > 2]
        return [t.data_ptr() for tensors in (self.params, *(slot[2] for slot in self.slots)) for t in tensors] + orders

    def prepare(self) -> None:
        """Make what the first step would make."""
        for batch in self.batches:
            batch.prepare(self.rule)

    def tensors(self) -> list[Tensor]:
        """List the tensors that it has made."""
        return [t for batch in self.batches for t in (batch.plan, batch.tickets) if t is not None]

    def run(self, grads: Tensors, hyper: Hyper, group: Group, factor: Maybe, active: Maybe) -> None:
        """Take one step with these gradients."""
        maximize, decoupled, nesterov = (bool(group.get(name, False)) for name in FLAGS)
        vectors = [hyper[name] for name in self.takes.hyper]
        for batch in self.batches:
            mine = grads if len(self.batches) == 1 else [grads[i] for i in batch.places]
            batch.run(self.rule, mine, vectors, factor, active, (maximize, decoupled, nesterov))
        # As after an in-place operation of torch: a backward pass that saved the old values is refused.
        torch.autograd.graph.increment_version(self.params)


class _Batch:
    """The parameters of a plan that share a device and a dtype: one operator call."""

    def __init__(self, takes: UpdateRule, params: list[Any], rows: list[Any], places: list[int]) -> None:
        self.places = places
        self.complex = params[0].is_complex()
        params = self._real(params)
        self.gaps = [(p, p.contiguous()) for p in params if _has_gaps(p)]  # computed with where they lie without
        dense = {id(p): copy for p, copy in self.gaps}
        params = [dense.get(id(p), p) for p in params]
        self.orders = [_memory_order(p) for p in params]
        self.permuted = any(order is not None for order in self.orders)
        self.params = self._arranged(params)
        self.states = [t for name in takes.states for t in self._arranged(self._real([row[name] for row in rows]))]
        self.scalars = [row[name] for name in takes.scalars for row in rows]
        self.written = [*self.params, *self.states, *self.scalars]
        first = params[0]
        self.halves = first.dtype in (torch.bfloat16, torch.float16) and not first.is_cuda
        self.plan: Tensor | None = None
        self.tickets: Tensor | None = None
        if first.is_cuda:
            count = len(params) * first.size(0)
            self.tickets = torch.zeros(count, dtype=torch.int32, device=first.device)

    def _real(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each tensor, complex ones as pairs of real numbers."""
        return [ops.as_real(t.detach()) for t in tensors] if self.complex else list(tensors)

    def _arranged(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each tensor with its dimensions in the order in which the parameter lies in memory."""
        return [
            t if order is None else t.detach().permute(order) for t, order in zip(tensors, self.orders, strict=True)
        ]

    @property
    def moves(self) -> bool:
        """True if it holds no views of its tensors, nor would need any where they lie now."""
        if self.permuted or self.complex or self.gaps:
            return False
        return not any(_memory_order(p) is not None or _has_gaps(p) for p in self.params)

    def prepare(self, rule: str) -> Tensor | None:
        """Make the operator's plan; 16-bit tensors need none. It is hidden from a recorder, because it is made once and
        not in every step."""
        if self.plan is None and not self.halves:
            _refuse_other_dtype(self.params, self.states)
            with hidden_from_modes():
                self.plan = ops.optimizer_plan(rule, self.params, self.states, self.scalars)
        return self.plan

    def follow_memory(self, rule: str) -> None:
        before, self.plan = self.plan, None
        made = self.prepare(rule)
        if before is not None and made is not None:
            with hidden_from_modes():
                self.plan = before.copy_(made)
            vars(before)["holds"] = vars(made)["holds"]

    def run(self, rule: str, grads: Tensors, vectors: list[Tensor], factor: Maybe, active: Maybe, flags: Flags) -> None:
        for parameter, copy in self.gaps:
            copy.copy_(parameter.detach())
        if self.complex:
            grads = self._real(grads)
        if self.permuted:
            grads = self._arranged(grads)
        if self.halves:
            ops.optimizer_(rule, self.params, grads, self.states, self.scalars, vectors, factor, active, *flags)
        else:
            try:
                plan = self.prepare(rule)
                assert plan is not None
                written = self.written if dispatch_modes() else ()
                ops.optimizer_step_(plan, grads, vectors, factor, active, self.tickets, *flags, written)
            except RuntimeError as error:
                refuse_sparse(grads, self.params)
                raise _explained(error) from None
        for parameter, copy in self.gaps:
            parameter.detach().copy_(copy)


def _explained(error: RuntimeError) -> Exception:
    """Turn an operator's error message, which begins with a place in its source, into one sentence; else return
    `error`."""
    place = re.match(r"\w+, \S+:\d+, \w+: ", str(error))
    if place is None:
        return error
    return InvalidArgument(f"the optimizer cannot step: {str(error)[place.end() :].splitlines()[0]}")


def _refuse_other_dtype(params: Sequence[Tensor], states: Sequence[Tensor]) -> None:
    for place, state in enumerate(states):
        dtype = params[place % len(params)].dtype
        if state.dtype != dtype:
            raise InvalidArgument(
                f"the optimizer's state is {str(state.dtype)[6:]} and its parameters are {str(dtype)[6:]}, as after "
                "array.float(): optimizer.load_state_dict(optimizer.state_dict()) converts the state"
            )


def refuse_sparse(grads: Sequence[Tensor], params: Sequence[Tensor]) -> None:
    """Refuse sparse gradients; the message names the first."""
    for grad, parameter in zip(grads, params, strict=True):
        if grad.layout != torch.strided:
            raise InvalidArgument(
                f"the optimizers of dnnsuite take dense gradients; a parameter {list(parameter.shape)} has one of "
                f"layout {grad.layout}: build its layer (an embedding?) with sparse=False"
            )


def refuse_other_width(params: Sequence[Tensor], active: Tensor) -> None:
    """Refuse parameters of another number of models than the hyper-parameters."""
    for parameter in params:
        if parameter.size(0) != active.numel():
            raise InvalidArgument(
                f"a parameter {list(parameter.shape)} is that of {parameter.size(0)} models, and this optimizer has "
                f"{active.numel()}: pass the optimizer to the edit of the array, as in array.drop(1, optimizer), or "
                "call optimizer.select with the models that are left"
            )


def _alike(params: Sequence[Tensor]) -> list[list[int]]:
    """Places of the parameters, by device and dtype."""
    places: dict[Any, list[int]] = {}
    for index, p in enumerate(params):
        places.setdefault((p.device, p.dtype), []).append(index)
    return list(places.values())


def _has_gaps(t: Tensor) -> bool:
    """Return True if no order of dimensions makes each model's part contiguous. Elements that share memory are none of
    this function's: the operator refuses them."""
    step, gaps = 1, False
    for place in reversed(memory_order(t)[1:]):
        if t.size(place) > 1 and t.stride(place) == 0:
            return False
        gaps = gaps or (t.size(place) > 1 and t.stride(place) != step)
        step *= t.size(place)
    return gaps


def _put_in_order(params: Sequence[Tensor], rows: Sequence[Any], names: Sequence[str]) -> None:
    """Lay states out as their parameters lie, which `.data = ...` may have put in another order."""
    for parameter, row in zip(params, rows, strict=True):
        order = memory_order(parameter)
        for name in names if len(order) > 2 and not _has_gaps(parameter) else ():
            if row[name].dim() == parameter.dim() and not row[name][:1].permute(order).is_contiguous():
                row[name] = row[name].permute(order).contiguous().permute(way_back(order))


def _memory_order(t: Tensor) -> list[int] | None:
    """Find the permutation of `t` that makes each model's part contiguous; None if it is, or if none would."""
    order = memory_order(t)
    return None if order == list(range(t.dim())) or t[:1].is_contiguous() else order
