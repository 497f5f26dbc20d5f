# SPDX-License-Identifier: MIT
"""Recurrent layers on a GPU: each time step is a batched product of all models and one kernel.

A CUDA graph of a layer then has two kernels for a step forward and two backward, and one product for the weights'
gradient of all steps. One kernel for all steps would have to synchronise its blocks between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .library import below_autograd, fakes_like, gradients_through, library, remember

fakes_like(None, "recurrence_step_", "recurrence_step_backward_")


def _times(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _packed(*tensors: Any) -> list[Any]:
    return [None if t is None else t.contiguous() for t in tensors]


def _forward(
    given: Sequence[Any], kind: str, reverse: bool, keep: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return outputs, last states and, for the backward pass, gates and cell states of all steps.

    Args:
        given: gates, weight_hh, bias_hh, h, c, lengths.
    """
    gates, weight_hh, bias_hh, h, c, lengths = given
    models, steps, rows, _ = gates.shape
    hidden, lstm = weight_hh.shape[2], kind == "lstm"
    shape = models, rows, hidden
    y = gates.new_empty(models, steps, rows, hidden)
    saved = gates.new_empty(models, steps, rows, 4 * hidden) if keep and kind in ("lstm", "gru") else None
    cells = torch.empty_like(y) if keep and lstm else None
    state = gates.new_zeros(shape) if h is None else h.clone(memory_format=torch.contiguous_format)
    cell = None
    if lstm:
        cell = gates.new_zeros(shape) if c is None else c.clone(memory_format=torch.contiguous_format)
    product = gates.new_empty(models, rows, weight_hh.shape[1])
    across = weight_hh.transpose(1, 2)
    begun = h is not None
    for time in _times(steps, reverse):
        if begun:
            torch.bmm(state, across, out=product)
        library.recurrence_step_(
            gates, product if begun else None, bias_hh, lengths, state, cell, y, saved, cells, time, kind
        )
        begun = True
    return y, state, cell, saved, cells


def _backward(
    grads: Sequence[Tensor | None],
    weight_hh: Tensor,
    h: Tensor | None,
    c: Tensor | None,
    lengths: Tensor | None,
    y: Tensor,
    saved: Tensor | None,
    cells: Tensor | None,
    kind: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Compute the gradients of the input's part of the gates, of the state's part, and of the first states."""
    models, steps, rows, hidden = y.shape
    grad_y, dh, grad_c = grads
    shape, width = (models, rows, hidden), weight_hh.shape[1]
    dgates = y.new_empty(models, steps, rows, width)
    dstate_gates = torch.empty_like(dgates) if kind == "gru" else None
    past = y.new_zeros(shape) if kind == "gru" or lengths is not None else None
    dc = None
    if kind == "lstm":
        dc = y.new_zeros(shape) if grad_c is None else grad_c.clone(memory_format=torch.contiguous_format)
    own = dgates if dstate_gates is None else dstate_gates
    through = y.new_empty(shape)
    before = 1 if reverse else -1
    last = _times(steps, reverse)[0]
    kept = (lengths, h, c, y, saved, cells, past, dc, dgates, dstate_gates)
    for time in reversed(_times(steps, reverse)):
        library.recurrence_step_backward_(grad_y, dh, *kept, time, time + before, kind)
        if time != last or h is not None:
            dh = torch.bmm(own[:, time], weight_hh, out=through)
    if h is None:
        dh = None
    elif past is not None and dh is not None:
        dh = dh + past
    return dgates, own, dh, dc if c is not None else None


def weight_gradient(dstate_gates: Tensor, y: Tensor, h: Tensor | None, lengths: Tensor | None, reverse: bool) -> Tensor:
    """Sum over the steps (gradient of the gates)ᵀ (state before the step), [B, G * H, H], in one product.

    A step's state is the result of the one before, or zero (after the end of a shorter sequence). The given first
    state's part is added.
    """
    later, earlier = (slice(0, -1), slice(1, None)) if reverse else (slice(1, None), slice(0, -1))
    result = torch.bmm(dstate_gates[:, later].flatten(1, 2).transpose(1, 2), y[:, earlier].flatten(1, 2))
    if h is None:
        return result
    return result.baddbmm_(first_gradient(dstate_gates, lengths, reverse).transpose(1, 2), h)


def first_gradient(dstate_gates: Tensor, lengths: Tensor | None, reverse: bool) -> Tensor:
    """Take the gradient of the gates of each sequence's first step, [B, N, G * H]."""
    if not (reverse and lengths is not None):
        return dstate_gates[:, -1 if reverse else 0]
    ends = (lengths - 1).clamp(min=0).unsqueeze(1).unsqueeze(-1).expand(-1, 1, -1, dstate_gates.shape[3])
    return dstate_gates.gather(1, ends).squeeze(1)


class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        *given, ctx.kind, ctx.reverse, ctx.composition = args
        tensors = _packed(*given)
        with below_autograd():
            y, last_h, last_c, saved, cells = _forward(tensors, ctx.kind, ctx.reverse, True)
        _, weight_hh, bias_hh, h, c, lengths = tensors
        ctx.has_bias = bias_hh is not None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weight_hh, h, c, lengths, y, saved, cells)
        remember(ctx, args)
        return y, last_h, last_c

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return gradients_through(ctx.composition, ctx, grads)
        weight_hh, h, c, lengths, y, saved, cells = ctx.saved_tensors[:7]
        _, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        dgates, own, dh, dc = _backward(
            _packed(*grads), weight_hh, h, c, lengths, y, saved, cells, ctx.kind, ctx.reverse
        )
        dweight = weight_gradient(own, y, h, lengths, ctx.reverse) if needs_weight else None
        dbias = own.sum((1, 2)) if needs_bias and ctx.has_bias else None
        return dgates, dweight, dbias, dh, dc, None, None, None, None


def recurrence_steps(*args: Any, keep: bool, composition: Callable[..., Any]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compute `ops.recurrence` by one product and one kernel for each step.

    Args:
        args: gates, weight_hh, bias_hh, h, c, lengths, kind, reverse.
        keep: a gradient may be wanted.
        composition: the same made of torch's operators, for gradients of gradients; ignores what follows `args`.
    """
    found: tuple[Tensor, Tensor, Tensor | None]
    if keep:
        found = _Steps.apply(*args, composition)
    else:
        kind, reverse = args[6:]
        found = _forward(_packed(*args[:6]), kind, reverse, False)[:3]
    return found
