# SPDX-License-Identifier: MIT
"""All time steps of one recurrent layer in one direction, of B models.

On a CPU they are one operator. On a GPU each is a batched product of all models and one kernel: a CUDA graph of a layer
then has two kernels for a step forward and two backward, and one product for the weights' gradient of all steps. One
kernel for all steps would have to synchronise its blocks between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ._linear import linear
from .device import on_cpu
from .library import cuda_kernels, differentiable, eager, fake, fakes_like, library, tracing, transforming

fakes_like(None, "recurrence_step_", "recurrence_step_backward_")


def _times(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _packed(*tensors: Any) -> list[Any]:
    return [None if t is None else t.contiguous() for t in tensors]


def _steps_forward(*args: Any) -> tuple[Tensor, ...]:
    """Return what the operator of all steps returns; saved gates and cell states are None where there are none."""
    *given, kind, reverse, keep = args
    gates, weight_hh, bias_hh, h, c, lengths = _packed(*given)
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
    return y, state, cell, saved, cells  # type: ignore[return-value]


def _steps_backward(*args: Any) -> tuple[Any, ...]:
    """Compute the gradients of the input's part of the gates, of the state's part, and of the first states."""
    *given, kind, reverse = args
    grad_y, dh, grad_c, weight_hh, h, c, lengths, y, saved, cells = _packed(*given)
    models, steps, rows, hidden = y.shape
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


def first_gradient(dstate_gates: Tensor, lengths: Tensor | None, reverse: bool) -> Tensor:
    """Take the gradient of the gates of each sequence's first step, [B, N, G * H]."""
    if not (reverse and lengths is not None):
        return dstate_gates[:, -1 if reverse else 0]
    ends = (lengths - 1).clamp(min=0).unsqueeze(1).unsqueeze(-1).expand(-1, 1, -1, dstate_gates.shape[3])
    return dstate_gates.gather(1, ends).squeeze(1)


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


def _grad_by(backward: Callable[..., Any], products: Callable[..., Tensor]) -> Callable[..., tuple[Any, ...]]:
    """Make the gradient of all steps, of the function for the gates' and that for the weights' products."""

    def grad_of(
        ctx: Any, grad_y: Tensor | None, grad_h: Tensor | None, grad_c: Tensor | None, *_: Any
    ) -> tuple[Any, ...]:
        weight_hh, h, c, lengths, y, saved, cells = ctx.saved_tensors
        grads = (grad_y, grad_h, grad_c if ctx.kind == "lstm" else None)
        dgates, dhidden, dh, dc = backward(*grads, weight_hh, h, c, lengths, y, saved, cells, ctx.kind, ctx.reverse)
        dhidden = dhidden if ctx.kind == "gru" else dgates
        _, needs_weight, needs_bias, needs_h, needs_c, *_ = ctx.needs_input_grad
        return (
            dgates,
            _weight_gradient(products, dhidden, y, h, lengths, ctx.reverse) if needs_weight else None,
            dhidden.sum((1, 2)) if needs_bias and ctx.has_bias else None,
            dh if needs_h and h is not None else None,
            dc if needs_c and c is not None else None,
            *(None,) * 4,
        )

    return grad_of


def _weight_gradient(
    products: Callable[..., Tensor], dhidden: Tensor, y: Tensor, h: Any, lengths: Any, reverse: bool
) -> Tensor:
    """Sum over the steps (gradient of the gates)ᵀ (state before the step), [B, G * H, H].

    One product for all steps: a step's state is the result of the one before, or zero (after the end of a shorter
    sequence). The given first state's part is added.
    """
    later, earlier = (slice(0, -1), slice(1, None)) if reverse else (slice(1, None), slice(0, -1))
    first = None if h is None else first_gradient(dhidden, lengths, reverse)
    return products(dhidden[:, later], y[:, earlier], first, h)


def _one_by_one(gates: Tensor, states: Tensor, first: Tensor | None, h: Tensor | None) -> Tensor:
    result = gates.new_empty(len(gates), gates.shape[3], states.shape[3])
    for model, into in enumerate(result.unbind(0)):
        if gates.shape[1]:
            torch.mm(gates[model].flatten(0, 1).t(), states[model].flatten(0, 1), out=into)
        if first is not None and h is not None:
            torch.addmm(into, first[model].t(), h[model], beta=int(gates.shape[1] > 0), out=into)
        elif not gates.shape[1]:
            into.zero_()
    return result


def _batched(gates: Tensor, states: Tensor, first: Tensor | None, h: Tensor | None) -> Tensor:
    result = torch.bmm(gates.flatten(1, 2).transpose(1, 2), states.flatten(1, 2))
    return result if first is None or h is None else result.baddbmm_(first.transpose(1, 2), h)


def _composition(*args: Any) -> tuple[Tensor | None, ...]:
    return *_composed(*args[:-1]), None, None


_recurrence = library.recurrence.default
_eager = differentiable(_recurrence, _setup, _grad_by(library.recurrence_backward.default, _one_by_one), _composition)
_by_steps = eager(_steps_forward, _setup, _grad_by(_steps_backward, _batched), _composition, many=True)


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
    given = gates, weight_hh, bias_hh, h, c, lengths, kind, reverse
    has_kernels = on_cpu(gates) or gates.is_cpu or (gates.is_cuda and cuda_kernels)
    if not has_kernels or (tracing() and not on_cpu(gates)):
        return _composed(*given)
    if not on_cpu(gates):
        steps: Any = _by_steps if keep else _steps_forward
        return steps(*given, keep)[:3]
    call = _eager if keep else _recurrence
    y, last_h, last_c, *_ = call(*given, keep)
    return y, last_h, last_c if kind == "lstm" else None
