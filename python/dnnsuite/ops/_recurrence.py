# SPDX-License-Identifier: MIT
"""All time steps of one recurrent layer in one direction, of B models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ._linear import linear
from ._recurrence_step import first_gradient, recurrence_steps
from .device import on_cpu
from .library import cuda_kernels, differentiable, fake, library, tracing, transforming

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Number of gates of each kind of cell. In torch's order: (input, forget, cell, output) and (reset, update, new)."""

State = tuple[Tensor, Tensor, Tensor | None]


def _cell(kind: str, given: Tensor, hidden: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Compute one step: from the input's part of the gates, the state's part, and the state to the next state."""
    if kind == "lstm":
        assert c is not None
        i, f, g, o = (given + hidden).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    if kind == "gru":
        (xr, xz, xn), (hr, hz, hn) = given.chunk(3, -1), hidden.chunk(3, -1)
        update, new = (xz + hz).sigmoid(), (xn + (xr + hr).sigmoid() * hn).tanh()
        return (h - new) * update + new, None
    return (torch.tanh if kind == "rnn_tanh" else torch.relu)(given + hidden), None


def _composed(
    gates: Tensor,
    weight_hh: Tensor,
    bias_hh: Tensor | None,
    h: Tensor | None,
    c: Tensor | None,
    lengths: Tensor | None,
    kind: str,
    reverse: bool,
    weight_hr: Tensor | None = None,
) -> State:
    """Compose the operator of torch's, step by step."""
    models, steps, rows, width = gates.shape
    h = gates.new_zeros(models, rows, weight_hh.shape[2]) if h is None else h
    if kind == "lstm" and c is None:
        c = gates.new_zeros(models, rows, width // 4)
    outputs: list[Tensor] = [h] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        new_h, new_c = _cell(kind, gates[:, t], linear(h, weight_hh, bias_hh), h, c)
        if weight_hr is not None:
            new_h = linear(new_h, weight_hr)
        if lengths is None:
            outputs[t], h, c = new_h, new_h, new_c
            continue
        active = (lengths > t).unsqueeze(-1)  # [B, N, 1]
        outputs[t] = new_h.masked_fill(~active, 0.0)
        h = torch.where(active, new_h, h)
        c = None if new_c is None or c is None else torch.where(active, new_c, c)
    return torch.stack(outputs, 1), h, c


def _new_states(gates: Tensor, weight_hh: Tensor, kind: str, keep: bool) -> tuple[Tensor, ...]:
    models, steps, rows, _ = gates.shape
    hidden, lstm = weight_hh.shape[2], kind == "lstm"
    state, every = (models, rows, hidden), (models, steps, rows)
    return (
        gates.new_empty((*every, hidden)),
        gates.new_empty(state),
        gates.new_empty(state if lstm else 0),
        gates.new_empty((*every, 4 * hidden) if keep and GATES[kind] > 1 else 0),
        gates.new_empty((*every, hidden) if keep and lstm else 0),
    )


fake("recurrence", _new_states)


def _new_gradients(weight_hh: Tensor, h: Tensor | None, c: Tensor | None, y: Tensor, kind: str) -> tuple[Tensor, ...]:
    shape = (*y.shape[:3], weight_hh.shape[1])
    return (
        y.new_empty(shape),
        y.new_empty(shape if kind == "gru" else 0),
        y.new_empty(0 if h is None else h.shape),
        y.new_empty(0 if c is None else c.shape),
    )


fake("recurrence_backward", _new_gradients)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, weight_hh, bias_hh, h, c, lengths, ctx.kind, ctx.reverse, _ = inputs
    y, _, _, saved, cells = output
    ctx.has_bias = bias_hh is not None
    ctx.reads_result = True
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(weight_hh, h, c, lengths, y, saved, cells)


def _backward(
    ctx: Any, grad_y: Tensor | None, grad_h: Tensor | None, grad_c: Tensor | None, *_: Any
) -> tuple[Any, ...]:
    weight_hh, h, c, lengths, y, saved, cells = ctx.saved_tensors
    grads = (grad_y, grad_h, grad_c if ctx.kind == "lstm" else None)
    dgates, dhidden, dh, dc = _recurrence_backward(
        *grads, weight_hh, h, c, lengths, y, saved, cells, ctx.kind, ctx.reverse
    )
    dhidden = dhidden if ctx.kind == "gru" else dgates
    _, needs_weight, needs_bias, needs_h, needs_c, *_ = ctx.needs_input_grad
    return (
        dgates,
        _weight_gradient(dhidden, y, h, lengths, ctx.reverse) if needs_weight else None,
        dhidden.sum((1, 2)) if needs_bias and ctx.has_bias else None,
        dh if needs_h and h is not None else None,
        dc if needs_c and c is not None else None,
        *(None,) * 4,
    )


def _weight_gradient(dhidden: Tensor, y: Tensor, h: Tensor | None, lengths: Tensor | None, reverse: bool) -> Tensor:
    """Sum over the steps (gradient of the gates) (state before the step)ᵀ, [B, G * H, H].

    One product for all steps of a model: a step's state is the result of the one before, or zero (after the end of a
    shorter sequence). The given first state's part is added.
    """
    steps = y.shape[1]
    later, earlier = (slice(0, -1), slice(1, None)) if reverse else (slice(1, None), slice(0, -1))
    result = y.new_empty(len(y), dhidden.shape[3], y.shape[3])
    first = None if h is None else first_gradient(dhidden, lengths, reverse)
    models = zip(result.unbind(0), dhidden[:, later].unbind(0), y[:, earlier].unbind(0), strict=True)
    for model, (into, gates, states) in enumerate(models):
        if steps > 1:
            torch.mm(gates.flatten(0, 1).t(), states.flatten(0, 1), out=into)
            if h is not None and first is not None:
                into.addmm_(first[model].t(), h[model])
        elif h is not None and first is not None:
            torch.mm(first[model].t(), h[model], out=into)
        else:
            into.zero_()
    return result


def _composition(
    gates: Tensor,
    weight_hh: Tensor,
    bias_hh: Tensor | None,
    h: Tensor | None,
    c: Tensor | None,
    lengths: Tensor | None,
    kind: str,
    reverse: bool,
    keep: bool,
) -> tuple[Tensor | None, ...]:
    return *_composed(gates, weight_hh, bias_hh, h, c, lengths, kind, reverse), None, None


_recurrence = library.recurrence.default
_recurrence_backward = library.recurrence_backward.default
_eager = differentiable(_recurrence, _setup, _backward, _composition)


def recurrence(
    gates: Tensor,
    weight_hh: Tensor,
    bias_hh: Tensor | None = None,
    h: Tensor | None = None,
    c: Tensor | None = None,
    lengths: Tensor | None = None,
    *,
    kind: str,
    reverse: bool = False,
    weight_hr: Tensor | None = None,
) -> State:
    """Run all steps of a recurrent layer on inputs that are already projected.

    Args:
        gates: contribution of the inputs to the gates of all steps, with its bias, [B, T, N, G * H].
        weight_hh, bias_hh: contribution of the state, [B, G * H, P] and [B, G * H].
        h, c: state before the first step, [B, N, P] and [B, N, H] (c only for an LSTM); zeros by default.
        lengths: int64 [B, N], number of steps of each sequence. Later outputs are zeros and do not change the state.
        kind: 'lstm', 'gru', 'rnn_tanh' or 'rnn_relu'.
        reverse: run from the last step to the first.
        weight_hr: projection of an LSTM's output, [B, P, H]; without it P is H.

    Returns:
        Outputs [B, T, N, P], the last h [B, N, P], and the last c [B, N, H] or None.
    """
    if kind not in GATES:
        raise InvalidArgument(f"recurrence: kind must be one of {', '.join(GATES)}, not {kind!r}")
    if gates.dim() != 4 or gates.shape[1] == 0 or gates.shape[-1] != weight_hh.shape[1]:
        raise InvalidArgument(
            f"recurrence: gates must be [B, T, N, {weight_hh.shape[1]}] with one or more steps T, not "
            f"{list(gates.shape)}"
        )
    if weight_hr is not None or transforming():
        return _composed(gates, weight_hh, bias_hh, h, c, lengths, kind, reverse, weight_hr)
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (gates, weight_hh, bias_hh, h, c))
    if not on_cpu(gates):
        if tracing() or not (gates.is_cpu or (gates.is_cuda and cuda_kernels)):
            return _composed(gates, weight_hh, bias_hh, h, c, lengths, kind, reverse)
        args = (gates, weight_hh, bias_hh, h, c, lengths, kind, reverse)
        return recurrence_steps(*args, keep=keep, composition=_composition)
    call = _eager if keep and not tracing() else _recurrence
    y, last_h, last_c, *_ = call(gates, weight_hh, bias_hh, h, c, lengths, kind, reverse, keep)
    return y, last_h, last_c if kind == "lstm" else None
