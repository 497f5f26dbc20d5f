# SPDX-License-Identifier: MIT
"""Single steps of recurrent networks, named as in `torch`."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ... import ops
from .._models import computable, promoted

Optional = Tensor | None
Pair = tuple[Tensor, Tensor]


def _step(
    kind: str, input: Tensor, h: Optional, c: Optional, w_ih: Tensor, w_hh: Tensor, b_ih: Optional, b_hh: Optional
) -> tuple[Tensor, Optional]:
    """Compute the next state from input `[B, N, I]` or `[B, I]` and state."""
    if input.dim() == 2:
        h, c = (None if v is None else v.unsqueeze(1) for v in (h, c))
        new_h, new_c = _step(kind, input.unsqueeze(1), h, c, w_ih, w_hh, b_ih, b_hh)
        return new_h.squeeze(1), None if new_c is None else new_c.squeeze(1)
    if kind != "gru" and b_ih is not None and b_hh is not None:
        b_ih, b_hh = b_ih + b_hh, None
    gates = ops.linear(input, w_ih, b_ih)
    exact, before = computable(gates), h if kind == "gru" else c
    added = kind in ("gru", "lstm")
    dtype = promoted(gates, input if before is None else before) if added else gates.dtype
    if not dtype == exact.dtype == w_hh.dtype or (h is not None and h.dtype != dtype):
        w_hh = w_hh.to(exact.dtype)
        b_hh, h, c = (None if v is None else v.to(exact.dtype) for v in (b_hh, h, c))
    _, new_h, new_c = ops.recurrence(exact.unsqueeze(1), w_hh, b_hh, h, c, kind=kind)
    if dtype == exact.dtype:
        return new_h, new_c
    return new_h.to(dtype), None if new_c is None else new_c.to(dtype)


def lstm_cell(
    input: Tensor, hx: Pair | None, w_ih: Tensor, w_hh: Tensor, b_ih: Optional = None, b_hh: Optional = None
) -> Pair:
    """`torch.lstm_cell` for B models: computes the next state from input `[B, N, I]` and a state of two tensors `[B, N,
    H]` (None: zeros)."""
    h, c = hx if hx is not None else (None, None)
    h, c = _step("lstm", input, h, c, w_ih, w_hh, b_ih, b_hh)
    assert c is not None
    return h, c


def _cell(kind: str) -> Callable[..., Tensor]:
    def cell(
        input: Tensor, hx: Optional, w_ih: Tensor, w_hh: Tensor, b_ih: Optional = None, b_hh: Optional = None
    ) -> Tensor:
        return _step(kind, input, hx, None, w_ih, w_hh, b_ih, b_hh)[0]

    cell.__name__ = cell.__qualname__ = f"{kind}_cell"
    cell.__doc__ = (
        f"`torch.{kind}_cell` for B models: input `[B, N, I]` and state `[B, N, H]` (None: zeros) to the next state."
    )
    return cell


gru_cell, rnn_tanh_cell, rnn_relu_cell = map(_cell, ("gru", "rnn_tanh", "rnn_relu"))
