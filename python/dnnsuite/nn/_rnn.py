# SPDX-License-Identifier: MIT
"""Recurrent layers of B models: LSTM, GRU and the plain RNN, their packed sequences, and the cells of single steps.

Packed sequences of an array have data `[B, sum of lengths, I]`, and lengths that all models share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch.nn.utils.rnn import PackedSequence

from .. import ops
from ..errors import InvalidArgument
from . import functional
from ._dropout import Dropout
from ._models import computable, promoted
from ._parametric import Parametric
from .array_module import ArrayModule, check_models, skips_initial_values
from .sharing import first_of, folded, is_frozen, spread_all


class Packing:
    """Conversion of one packed batch to a padded one with lengths, and back. torch packs by time: the first steps of
    all sequences, longest first, then the second steps, and so on."""

    def __init__(self, packed: PackedSequence, B: int) -> None:
        self.packed, sizes = packed, packed.batch_sizes
        total = int(sizes.sum())
        if packed.data.dim() != 3 or packed.data.shape[:2] != (B, total):
            raise InvalidArgument(
                f"a PackedSequence for B={B} models has data [{B}, {total}, I], the models' packed data stacked, with "
                f"the same lengths in each; got {list(packed.data.shape)}"
            )
        device = packed.data.device
        self.steps, self.rows = len(sizes), int(sizes[0]) if len(sizes) else 0
        active = torch.arange(self.rows) < sizes.unsqueeze(1)  # [T, N]
        time, row = active.nonzero(as_tuple=True)
        self._time, self._row = time.to(device), row.to(device)
        self.lengths = active.sum(0).to(device).expand(B, -1)

    def pad(self) -> torch.Tensor:
        """Unpack to `[B, T, N, I]`, with zeros after the end of each sequence."""
        data = self.packed.data
        padded = data.new_zeros(len(data), self.steps, self.rows, data.shape[-1])
        padded[:, self._time, self._row] = data
        return padded

    def pack(self, y: torch.Tensor) -> PackedSequence:
        """Pack outputs `[B, T, N, H]`: the inverse of `pad`."""
        own = self.packed
        return PackedSequence(y[:, self._time, self._row], own.batch_sizes, own.sorted_indices, own.unsorted_indices)

    def sort(self, state: Sequence[torch.Tensor] | None) -> Sequence[torch.Tensor] | None:
        """Sort states `[B, layers, N, H]` from the caller's order into that of the packed sequences."""
        return state if state is None else _in_order(state, self.packed.sorted_indices)

    def unsort(self, state: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Undo `sort`."""
        return _in_order(state, self.packed.unsorted_indices)


def _in_order(state: Sequence[torch.Tensor], order: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    return tuple(state) if order is None else tuple(part.index_select(2, order) for part in state)


State = tuple[torch.Tensor, ...]
_MADE_FOR = ("input_size", "hidden_size", "num_layers", "bias", "bidirectional", "proj_size")
_STEMS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


class RecurrentLayer(Parametric):
    """Base of LSTM, GRU and RNN: `[B, T, N, I]` (`batch_first`: `[B, N, T, I]`; one sequence: `[B, T, I]`) to H.

    Parameters have torch's names and shapes, with B in front. The inputs of all time steps are projected in one
    product, and the steps are one operator. Dropout between the layers has a rate and a random stream per model. The
    PackedSequence of an array has data `[B, sum of lengths, I]` and the same lengths in every model.
    """

    arguments: ClassVar[tuple[str, ...]] = (
        "input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional",
    )  # fmt: skip
    per_model_arguments = ("dropout",)
    kind: str  # of cell, as `ops.recurrence` names it
    compute_dtype: torch.dtype | None = None  # of the inputs' products, if not that of the parameters

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float | Sequence[float] = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
        *,
        B: int,
    ) -> None:
        ArrayModule.__init__(self, B)
        sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers, "bias": bias}
        more = {name: value for name, value in vars(self).items() if name in self.arguments}  # of an RNN
        more |= {"proj_size": proj_size} if proj_size else {}
        options = {"batch_first": batch_first, "bidirectional": bidirectional, "dtype": dtype}
        plain = self._of_torch(**sizes, **options, **more)
        self.layer_dropout = Dropout(B=B, device=device)
        self._take(plain, device)
        self.dropout, self.proj_size = dropout, plain.proj_size
        if not skips_initial_values():
            self.reset_parameters()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _MADE_FOR and self.__dict__.get(name, value) != value:
            raise InvalidArgument(
                f"the weights of this {type(self).__name__} are made for {name}={getattr(self, name)}, got {value}: "
                "make another layer"
            )
        super().__setattr__(name, value)

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> list[str]:
        return [f"l{layer}", f"l{layer}_reverse"][: self.directions]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw uniformly from ±1/√hidden_size, model by model, as torch does."""
        bound = self.hidden_size**-0.5
        for index in range(self.B):
            for parameter in self.parameters():
                torch.nn.init.uniform_(parameter[index], -bound, bound)

    def flatten_parameters(self) -> None:
        """Do nothing; it exists for compatibility, because parameters are used where they are."""

    @property
    def dropout(self) -> Any:
        """Dropout rate: one number, or a list if the models differ. You can assign a number, a list or a tensor."""
        return self.layer_dropout.one_or_all_rates()

    @dropout.setter
    def dropout(self, value: Any) -> None:
        self.layer_dropout.p = value

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        dropout = module.layer_dropout.rates if isinstance(module, RecurrentLayer) else module.dropout
        return super().arguments_of(module) | {"dropout": dropout}

    def _direction(
        self, x: torch.Tensor, suffix: str, h: torch.Tensor | None, c: torch.Tensor | None, lengths: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Run one layer in one direction: x `[B, T, N, I]` to (outputs, last h, last c)."""
        own: dict[str, Any] = self._parameters
        if not all(is_frozen(own.get(f"{name}_{suffix}")) for name in _STEMS):
            return self._projected(x, suffix, h, c, lengths)
        given = (x, h, c, lengths)
        if all(map(is_frozen, given)):
            return spread_all(self.of_one()._projected(first_of(x), suffix, *map(first_of, given[1:])), self.B)
        if x.size(2) % 2:  # the last of an odd number of rows is summed in another order: in company it would be even
            return self._projected(x, suffix, h, c, lengths)
        x = x.transpose(0, 1).flatten(1, 2).unsqueeze(0)  # the sequences of all models as those of one
        rows = [None if part is None else folded(part) for part in given[1:]]
        y, *states = self.of_one()._projected(x, suffix, *rows)
        last = [None if part is None else part.reshape(self.B, -1, part.size(-1)) for part in states]
        return y[0].unflatten(1, (self.B, -1)).transpose(0, 1), *last

    def _projected(
        self, x: torch.Tensor, suffix: str, h: torch.Tensor | None, c: torch.Tensor | None, lengths: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Run `_direction` with weights per model: one product for the inputs of all steps, then the steps."""
        own: dict[str, Any] = self._parameters
        weight, project = own[f"weight_hh_{suffix}"], own.get(f"weight_hr_{suffix}")
        bias, hidden_bias = own.get(f"bias_ih_{suffix}"), own.get(f"bias_hh_{suffix}")
        if bias is not None and self.kind != "gru":
            bias, hidden_bias = bias + hidden_bias, None  # only in a GRU does the second take another way
        gates = ops.linear(x, own[f"weight_ih_{suffix}"], bias, dtype=self.compute_dtype)
        gates = gates if self.compute_dtype is None else gates.to(x.dtype)
        exact = computable(gates)
        dtype = promoted(gates, x if h is None else h) if self.kind == "gru" else gates.dtype
        if not dtype == exact.dtype == weight.dtype or (h is not None and h.dtype != dtype):
            given = (weight, hidden_bias, h, c, project)
            weight, hidden_bias, h, c, project = (None if v is None else v.to(exact.dtype) for v in given)
        backwards = suffix.endswith("reverse")
        state = (weight, hidden_bias, h, c, lengths)
        y, last_h, last_c = ops.recurrence(exact, *state, kind=self.kind, reverse=backwards, weight_hr=project)
        if dtype == exact.dtype:
            return y, last_h, last_c
        return y.to(dtype), last_h.to(dtype), None if last_c is None else last_c.to(dtype)

    def _layers(
        self, x: torch.Tensor, state: Sequence[torch.Tensor] | None, lengths: torch.Tensor | None
    ) -> tuple[torch.Tensor, State]:
        """Run all layers: x `[B, T, N, I]` and states `[B, layers * directions, N, H]` to outputs and last states."""
        hs: list[torch.Tensor] = []
        cs: list[torch.Tensor] = []
        for layer in range(self.num_layers):
            outputs = []
            for suffix in self._suffixes(layer):
                before = [None, None] if state is None else [part[:, len(hs)] for part in state]
                y, h, c = self._direction(x, suffix, before[0], before[1] if self.kind == "lstm" else None, lengths)
                outputs.append(y)
                hs.append(h)
                cs += [] if c is None else [c]
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
            if layer + 1 < self.num_layers:
                x = self.layer_dropout(x).to(x.dtype)
        states = [part for part in (hs, cs) if part]
        return x, tuple(part[0].unsqueeze(1) if len(part) == 1 else torch.stack(part, 1) for part in states)

    def _check_state(self, state: Sequence[torch.Tensor], rows: int) -> None:
        count = self.num_layers * self.directions
        sizes = (self.proj_size or self.hidden_size, self.hidden_size)
        for name, part, size in zip(("hx", "cx"), state, sizes, strict=False):
            wanted = [self.B, count, rows, size]
            if list(part.shape) != wanted:
                raise InvalidArgument(f"{type(self).__name__}: {name} must be {wanted}, not {list(part.shape)}")

    def _run(self, x: Any, state: Sequence[torch.Tensor] | None) -> tuple[Any, State]:
        """Run `forward` with the state as a tuple of tensors."""
        if isinstance(x, PackedSequence):
            packing = Packing(x, self.B)
            padded, state = packing.pad(), packing.sort(state)
            self._check_input(padded)
            if state is not None:
                self._check_state(state, padded.shape[2])
            y, state = self._layers(padded, state, packing.lengths)
            return packing.pack(y), packing.unsort(state)
        check_models(x, self.B, type(self).__name__)
        single = x.dim() == 3
        if single:  # one sequence without a batch: [B, T, I]
            x = x.unsqueeze(1 if self.batch_first else 2)
            state = None if state is None else [part.unsqueeze(2) for part in state]
        self._check_input(x)
        x = x.transpose(1, 2) if self.batch_first else x
        if state is not None:
            self._check_state(state, x.shape[2])
        y, state = self._layers(x, state, None)
        y = y.transpose(1, 2) if self.batch_first else y
        if single:
            y = y.squeeze(1 if self.batch_first else 2)
            state = tuple(part.squeeze(2) for part in state)
        return y, state

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        y, (h,) = self._run(input, None if hx is None else (hx,))
        return y, h

    def _check_input(self, x: torch.Tensor) -> None:
        if x.dim() != 4 or x.shape[-1] != self.input_size or x.shape[2 if self.batch_first else 1] == 0:
            layout = "[B, N, T, I]" if self.batch_first else "[B, T, N, I]"
            raise InvalidArgument(
                f"{type(self).__name__} takes {layout} with I = {self.input_size} and one or more time steps T, or "
                f"[B, T, I] for one sequence; got {list(x.shape)}"
            )


class LSTM(RecurrentLayer):
    """`torch.nn.LSTM` for B models (Hochreiter and Schmidhuber, 1997; with `proj_size` Sak et al., 2014).

    Returns (output, (h, c)); h and c are `[B, num_layers * directions, N, H]`.
    """

    arguments = (*RecurrentLayer.arguments, "proj_size")
    kind = "lstm"

    def forward(self, input: Any, hx: State | None = None) -> tuple[Any, State]:
        if hx is not None and (isinstance(hx, torch.Tensor) or len(hx) != 2):
            raise InvalidArgument("LSTM takes its state as a pair (h, c)")
        return self._run(input, hx)


class GRU(RecurrentLayer):
    """`torch.nn.GRU` for B models (Cho et al., 2014). Returns (output, h); h is `[B, num_layers * directions, N,
    H]`."""

    kind = "gru"


class RNN(RecurrentLayer):
    """`torch.nn.RNN` for B models (Elman, 1990). Returns (output, h); h is `[B, num_layers * directions, N, H]`."""

    arguments = (*RecurrentLayer.arguments, "nonlinearity")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float | Sequence[float] = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        B: int,
    ) -> None:
        self.nonlinearity, self.kind = nonlinearity, f"rnn_{nonlinearity}"
        sizes = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0)
        super().__init__(*sizes, device, dtype, B=B)


Pair = tuple[torch.Tensor, torch.Tensor]


class RecurrentCell(Parametric):
    """Base of the cells: inputs are `[B, N, I]` (or `[B, I]` for one row), states `[B, N, H]`; the four parameters have
    torch's names."""

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
