# SPDX-License-Identifier: MIT
"""Single steps of recurrent layers of B models: LSTMCell, GRUCell, RNNCell."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ..errors import InvalidArgument
from . import functional
from ._parametric import Parametric
from .array_module import check_models

Pair = tuple[torch.Tensor, torch.Tensor]


class RecurrentCell(Parametric):
    """Base of the cells: inputs are `[B, N, I]` (or `[B, I]` for one row), states `[B, N, H]`; the four parameters have
    torch's names.
    """

    arguments: ClassVar[tuple[str, ...]] = ("input_size", "hidden_size", "bias")

    bias_ih: torch.Tensor | None
    bias_hh: torch.Tensor | None

    def _check(self, input: torch.Tensor, *state: torch.Tensor) -> None:
        name = type(self).__name__
        check_models(input, self.B, name)
        if input.dim() not in (2, 3) or input.shape[-1] != self.input_size:
            raise InvalidArgument(
                f"{name} takes [B, N, {self.input_size}] or [B, {self.input_size}], got {list(input.shape)}"
            )
        wanted = [*input.shape[:-1], self.hidden_size]
        for part in state:
            if list(part.shape) != wanted:
                raise InvalidArgument(f"{name}: the state must be {wanted}, not {list(part.shape)}")


class LSTMCell(RecurrentCell):
    """`torch.nn.LSTMCell` for B models: input and (h, c) to the next (h, c)."""

    def forward(self, input: torch.Tensor, hx: Pair | None = None) -> Pair:
        self._check(input, *(hx or ()))
        return functional.lstm_cell(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class GRUCell(RecurrentCell):
    """`torch.nn.GRUCell` for B models: input and h to the next h."""

    def forward(self, input: torch.Tensor, hx: torch.Tensor | None = None) -> torch.Tensor:
        self._check(input, *(() if hx is None else (hx,)))
        return functional.gru_cell(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class RNNCell(RecurrentCell):
    """`torch.nn.RNNCell` for B models: input and h to the next h."""

    arguments = (*RecurrentCell.arguments, "nonlinearity")

    def _take(self, plain: Any, device: Any) -> None:
        if plain.nonlinearity not in ("tanh", "relu"):
            raise InvalidArgument(f"nonlinearity must be 'tanh' or 'relu', got {plain.nonlinearity!r}")
        super()._take(plain, device)

    def forward(self, input: torch.Tensor, hx: torch.Tensor | None = None) -> torch.Tensor:
        self._check(input, *(() if hx is None else (hx,)))
        step = functional.rnn_tanh_cell if self.nonlinearity == "tanh" else functional.rnn_relu_cell
        return step(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
