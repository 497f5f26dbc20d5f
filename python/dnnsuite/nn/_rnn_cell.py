# SPDX-License-Identifier: MIT
"""Single steps of recurrent layers of B models: LSTMCell, GRUCell, RNNCell."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from .. import ops
from ..errors import InvalidArgument
from . import functional
from .array_module import ArrayModule, check_models

Pair = tuple[torch.Tensor, torch.Tensor]


class RecurrentCell(ArrayModule):
    """Base of the cells: inputs are `[B, N, I]` (or `[B, I]` for one row), states `[B, N, H]`; the four parameters have
    torch's names.
    """

    arguments: ClassVar[tuple[str, ...]] = ("input_size", "hidden_size", "bias")

    bias_ih: torch.Tensor | None
    bias_hh: torch.Tensor | None

    def __init__(
        self, kind: str, input_size: int, hidden_size: int, bias: bool, device: Any, dtype: Any, B: int
    ) -> None:
        super().__init__(B)
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        width, where = ops.GATES[kind] * hidden_size, {"device": device, "dtype": dtype}
        self.weight_ih = torch.nn.Parameter(torch.empty(B, width, input_size, **where))
        self.weight_hh = torch.nn.Parameter(torch.empty(B, width, hidden_size, **where))
        for name in ("bias_ih", "bias_hh"):
            value = torch.nn.Parameter(torch.empty(B, width, **where)) if bias else None
            self.register_parameter(name, value)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw uniformly from ±1/√hidden_size, model by model, as torch does."""
        bound = self.hidden_size**-0.5 if self.hidden_size > 0 else 0.0
        for index in range(self.B):
            for parameter in self.parameters():
                torch.nn.init.uniform_(parameter[index], -bound, bound)

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

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None, *, B: int
    ) -> None:
        super().__init__("lstm", input_size, hidden_size, bias, device, dtype, B)

    def forward(self, input: torch.Tensor, hx: Pair | None = None) -> Pair:
        self._check(input, *(hx or ()))
        return functional.lstm_cell(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class GRUCell(RecurrentCell):
    """`torch.nn.GRUCell` for B models: input and h to the next h."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None, *, B: int
    ) -> None:
        super().__init__("gru", input_size, hidden_size, bias, device, dtype, B)

    def forward(self, input: torch.Tensor, hx: torch.Tensor | None = None) -> torch.Tensor:
        self._check(input, *(() if hx is None else (hx,)))
        return functional.gru_cell(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class RNNCell(RecurrentCell):
    """`torch.nn.RNNCell` for B models: input and h to the next h."""

    arguments = (*RecurrentCell.arguments, "nonlinearity")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
        *,
        B: int,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise InvalidArgument(f"nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        super().__init__("rnn_tanh", input_size, hidden_size, bias, device, dtype, B)
        self.nonlinearity = nonlinearity

    def forward(self, input: torch.Tensor, hx: torch.Tensor | None = None) -> torch.Tensor:
        self._check(input, *(() if hx is None else (hx,)))
        step = functional.rnn_tanh_cell if self.nonlinearity == "tanh" else functional.rnn_relu_cell
        return step(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
