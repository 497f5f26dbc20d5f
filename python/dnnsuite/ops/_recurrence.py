# SPDX-License-Identifier: MIT
"""All time steps of one recurrent layer in one direction, of B models."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ._linear import linear

__all__ = ["GATES", "recurrence"]

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Gates of each kind of cell, in torch's order: (input, forget, cell, output), (reset, update, new)."""

State = tuple[Tensor, Tensor, Tensor | None]


def _cell(
    kind: str, given: Tensor, hidden: Tensor, h: Tensor, c: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """One step: the input's part of the gates, the state's part, and the state, to the next state."""
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
    """The definition, step by step in torch's operators."""
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
    """(outputs [B, T, N, P], last h [B, N, P], last c [B, N, H] or None) of a layer whose inputs are projected.

    Args:
        gates: the inputs' part of the gates of all steps, [B, T, N, G * H], with the bias that goes with it.
        weight_hh, bias_hh: the state's part, [B, G * H, P] and [B, G * H].
        h, c: the state before the first step, [B, N, P] and [B, N, H] (c: LSTM only); zeros without it.
        lengths: int64 [B, N], the steps of each sequence; later ones give zeros and leave the state as it is.
        kind: 'lstm', 'gru', 'rnn_tanh' or 'rnn_relu'.
        reverse: from the last step to the first.
        weight_hr: an LSTM's projection of its output, [B, P, H]; without it P is H.
    """
    if kind not in GATES:
        raise InvalidArgument(f"recurrence: kind must be one of {', '.join(GATES)}, not {kind!r}")
    if gates.dim() != 4 or gates.shape[1] == 0 or gates.shape[-1] != weight_hh.shape[1]:
        raise InvalidArgument(
            f"recurrence: gates must be [B, T, N, {weight_hh.shape[1]}] with one or more steps T, not "
            f"{list(gates.shape)}"
        )
    return _composed(gates, weight_hh, bias_hh, h, c, lengths, kind, reverse, weight_hr)
