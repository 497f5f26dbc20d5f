# SPDX-License-Identifier: MIT
"""Dropout with a rate and a random stream per model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from .._torch import hidden_from_modes
from .array_module import ArrayModule, check_models, per_model
from .functional.dropout import checked_rates, drop, drop_alpha, drop_alpha_channels, drop_channels
from .model_tensor import NotFusable, physical, state
from .random_streams import advance, new_stream, pass_over


class Dropout(ArrayModule):
    """`torch.nn.Dropout` for B models: `[B, ...]` to `[B, ...]`; `p` is one rate, or one per model.

    You can assign another number, list or tensor to `p` at any time, and write to it in place.

    The mask depends only on the model's seed, the layer's position in the model, the step and the element, so a model
    drops the same elements whatever B, its slot and the other models are; `dnnsuite.nn.seed` sets the seeds. There is
    no in-place form, because the mask is recomputed in the backward pass and it would save no memory.

    >>> import torch
    >>> from dnnsuite import nn
    >>> layer = nn.Dropout([0.0, 0.5, 1.0], B=3)
    >>> kept = layer(torch.ones(3, 1000)).count_nonzero(1)
    >>> kept[0].item(), 400 < kept[1].item() < 600, kept[2].item()
    (1000, True, 0)
    """

    reread: ClassVar[frozenset[str]] = frozenset(("p",))
    per_model_arguments = ("p",)
    p: torch.Tensor  # float32 [B]
    rng: torch.Tensor  # int64 [B, 2]: key and step of each model's stream

    def __init__(self, p: float | Sequence[float] = 0.5, inplace: bool = False, *, device: Any = None, B: int) -> None:
        super().__init__(B)
        self.inplace = inplace
        self.register_buffer("p", torch.zeros(B, dtype=torch.float32, device=device), persistent=False)
        self.p = p  # type: ignore[assignment]
        self.register_buffer("rng", new_stream(B, device), persistent=False)

    @property
    def rates(self) -> list[float]:
        """Rate of each model, read again after `p` was written to."""
        p: Any = self._buffers["p"]
        known, of, version = self.__dict__.get("_fused_rates", (None, None, 0))
        if of is not p or version != p._version:
            with hidden_from_modes():  # a recorded step depends on what `recorded_values` says, not on this look
                values = known if p.is_meta else p.tolist()
                if known is None or torch.tensor(known, dtype=p.dtype).tolist() != values:
                    known = checked_rates([float(f"{rate:.7g}") for rate in values])
            self._know(known)
        return known

    def _know(self, rates: list[float]) -> None:
        p: Any = self._buffers["p"]
        self.__dict__["_fused_rates"] = rates, p, p._version

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "p":
            rates = checked_rates(per_model(physical(value), self.B, "p"))
            with torch.no_grad():  # into its place, which parts of the array and recorded steps read
                self._buffers["p"].copy_(torch.tensor(rates))  # type: ignore[union-attr]
            self._know(rates)
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "p" and state.B and not any(self.rates):
            return 0.0  # for a model's code, which asks whether it drops: a number that is the same for all models
        return super().__getattr__(name)

    def renew(self, device: torch.device) -> None:
        rates = self.__dict__["_fused_rates"][0]
        self._buffers["p"].copy_(torch.tensor(rates))  # type: ignore[union-attr]
        self._buffers["rng"] = new_stream(self.B, device)
        self._know(rates)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        rates = self.rates
        super()._apply(fn, recurse)
        p: Any = self._buffers["p"]
        if p.dtype != torch.float32:  # a rate is none of the numbers that a model computes in a precision
            self._buffers["p"] = p.float()
            if not p.is_meta:
                self._buffers["p"].copy_(torch.tensor(rates))  # type: ignore[union-attr]
            self._know(rates)
        return self

    def one_or_all_rates(self) -> Any:
        """Return one rate, or a list if the models differ."""
        rates = self.rates
        if any(rate != rates[0] for rate in rates):
            if state.B:
                raise NotFusable("rates of dropout differ from model to model")
            return rates
        return rates[0] if rates else 0.0

    def leaves_out(self, start: int, length: int) -> bool:
        return not any(self.rates[start : start + length])

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {"p": module.rates if isinstance(module, Dropout) else module.p, "inplace": module.inplace}

    def recorded_values(self) -> tuple[Any, ...]:
        return (any(self.rates),)  # the rates themselves are in `p`, which a step reads anew

    def is_alike(self) -> bool:
        return not self.training or not any(self.rates)

    def of_one(self) -> Any:
        # The streams of all models: a layer that drops nothing counts on, too.
        one = object.__new__(type(self))
        one.__dict__.update(self.__dict__, B=1)
        return one

    def draw(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return (p, rng) of this step for an operator that includes dropout; (None, None) if nothing is dropped."""
        if not self.training:
            return None, None
        held: Any = self._buffers  # at the speed of a dictionary: every step asks
        if not any(self.rates):
            pass_over(held["rng"])
            return None, None
        return held["p"], advance(held["rng"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, type(self).__name__)
        p, rng = self.draw()
        return x if p is None or rng is None else self.drop(x, p, rng)

    def drop(self, x: torch.Tensor, p: torch.Tensor, rng: torch.Tensor) -> torch.Tensor:
        """Drop elements of `x` with the draw (p, rng)."""
        return drop(x, p, rng)


class Dropout1d(Dropout):
    """`torch.nn.Dropout1d` for B models: drops whole channels of `[B, N, C, L]` or `[B, C, L]`, at one rate per
    model."""

    _unbatched: ClassVar[int | None] = 3

    def drop(self, x: torch.Tensor, p: torch.Tensor, rng: torch.Tensor) -> torch.Tensor:
        if x.dim() == self._unbatched:
            return drop_channels(x.unsqueeze(1), p, rng).squeeze(1)
        return drop_channels(x, p, rng)


class Dropout2d(Dropout1d):
    """`torch.nn.Dropout2d` for B models: drops whole channels of `[B, N, C, H, W]`; on `[B, N, C, L]` it is
    Dropout1d."""

    _unbatched = None


class Dropout3d(Dropout1d):
    """`torch.nn.Dropout3d` for B models: drops whole channels of `[B, N, C, D, H, W]` or `[B, C, D, H, W]`."""

    _unbatched = 5


class AlphaDropout(Dropout):
    """`torch.nn.AlphaDropout` for B models, at one rate per model; it keeps mean and variance (Klambauer et al., NIPS
    2017)."""

    def drop(self, x: torch.Tensor, p: torch.Tensor, rng: torch.Tensor) -> torch.Tensor:
        return drop_alpha(x, p, rng)


class FeatureAlphaDropout(Dropout):
    """`torch.nn.FeatureAlphaDropout` for B models: AlphaDropout on whole channels of `[B, N, C, *]`."""

    def drop(self, x: torch.Tensor, p: torch.Tensor, rng: torch.Tensor) -> torch.Tensor:
        return drop_alpha_channels(x, p, rng)
