# SPDX-License-Identifier: MIT
"""Dropout with a rate and a random stream per model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch

from ..errors import InvalidArgument
from ._base import ArrayModule, check_models, per_model
from ._checkpoint import advance
from .functional.dropout import drop, drop_alpha, drop_alpha_channels, drop_channels

_MASK64 = (1 << 64) - 1
#: The buffer of an array, int64 `[B, 2]`, with key and step of the models' streams for functions outside any layer.
FUNCTION_STREAM = "_function_stream"


class Dropout(ArrayModule):
    """`torch.nn.Dropout` for B models: `[B, ...]` to `[B, ...]`, `p` a float or one rate per model.

    The mask is a function of (seed of the model, this layer's place in it, step, element), so model i drops the same
    elements whatever B, its slot or its neighbours; `dnnsuite.nn.seed` sets the seeds. In place is not offered: the
    mask is recomputed in the backward pass, so nothing is saved by it.
    """

    torch_class: ClassVar[Callable[..., torch.nn.Module]] = torch.nn.Dropout
    per_model_lists = ("rates",)
    p: torch.Tensor  # float32 [B]
    rng: torch.Tensor  # int64 [B, 2]: key and step of each model's stream

    def __init__(
        self, p: float | Sequence[float] = 0.5, inplace: bool = False, *, device: Any = None, B: int
    ) -> None:
        super().__init__(B)
        self.rates = per_model(p, B, "p")
        for rate in self.rates:
            if not 0.0 <= rate <= 1.0:
                raise InvalidArgument(f"dropout probability must be between 0 and 1, got {rate!r}")
        self.inplace = inplace
        self.register_buffer(
            "p", torch.tensor(self.rates, dtype=torch.float32, device=device), persistent=False
        )
        keys = torch.randint(-(1 << 62), 1 << 62, (B,), dtype=torch.int64)
        rng = torch.stack([keys, torch.zeros_like(keys)], dim=1).to(device)
        self.register_buffer("rng", rng, persistent=False)

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {"p": module.rates if isinstance(module, Dropout) else module.p, "inplace": module.inplace}

    @classmethod
    def per_model_arguments(cls) -> tuple[str, ...]:
        return ("p",)

    def draw(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """(p, rng) of this step for an operator that drops by itself; (None, None) if nothing drops."""
        if not self.training or not any(self.rates):
            return None, None
        return self.p, advance(self.rng)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, type(self).__name__)
        p, rng = self.draw()
        return x if p is None or rng is None else self.drop(x, p, rng)

    def drop(self, x: torch.Tensor, p: torch.Tensor, rng: torch.Tensor) -> torch.Tensor:
        """What the layer does to its input when it draws."""
        return drop(x, p, rng)


class Dropout1d(Dropout):
    """`torch.nn.Dropout1d` for B models: whole channels of `[B, N, C, L]`, or of `[B, C, L]`, a rate per model."""

    torch_class: ClassVar[Callable[..., torch.nn.Module]] = torch.nn.Dropout1d
    _unbatched: ClassVar[int | None] = 3

    def drop(self, x: torch.Tensor, p: torch.Tensor, rng: torch.Tensor) -> torch.Tensor:
        if x.dim() == self._unbatched:
            return drop_channels(x.unsqueeze(1), p, rng).squeeze(1)
        return drop_channels(x, p, rng)


class Dropout2d(Dropout1d):
    """`torch.nn.Dropout2d` for B models: whole channels of `[B, N, C, H, W]`; `[B, N, C, L]` is Dropout1d."""

    torch_class = torch.nn.Dropout2d
    _unbatched = None


class Dropout3d(Dropout1d):
    """`torch.nn.Dropout3d` for B models: whole channels of `[B, N, C, D, H, W]`, or of `[B, C, D, H, W]`."""

    torch_class = torch.nn.Dropout3d
    _unbatched = 5


class AlphaDropout(Dropout):
    """`torch.nn.AlphaDropout` for B models: mean and variance stay (Klambauer et al., NIPS 2017); a rate per model."""

    torch_class = torch.nn.AlphaDropout

    def drop(self, x: torch.Tensor, p: torch.Tensor, rng: torch.Tensor) -> torch.Tensor:
        return drop_alpha(x, p, rng)


class FeatureAlphaDropout(Dropout):
    """`torch.nn.FeatureAlphaDropout` for B models: AlphaDropout of whole channels of `[B, N, C, *]`."""

    torch_class = torch.nn.FeatureAlphaDropout

    def drop(self, x: torch.Tensor, p: torch.Tensor, rng: torch.Tensor) -> torch.Tensor:
        return drop_alpha_channels(x, p, rng)


def streams(array: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Every layer of `array` that has a random stream, with its qualified name, in a fixed order."""
    for name, module in array.named_modules():
        if isinstance(module, ArrayModule) and "rng" in module._buffers:
            yield name, module


def stream_key(seed: int, place: int) -> int:
    """The int64 key of the stream at `place` of a model with `seed`: SplitMix64 (Steele et al., OOPSLA 2014)."""
    z = (seed * 0x9E3779B97F4A7C15 + (place + 1) * 0xD1B54A32D192ED03) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    z ^= z >> 31
    return z - (1 << 64) if z >> 63 else z


@torch.no_grad()
def seed(array: torch.nn.Module, seeds: Sequence[int]) -> None:
    """Starts every random stream of `array` anew: model i gets the streams that belong to `seeds[i]`.

    Two arrays of the same architecture give model s the same dropout masks, whatever slot s has in them.
    """
    held = list(_all_streams(array).values())
    for place, rng in enumerate(held):
        if len(seeds) != len(rng):
            raise InvalidArgument(f"{len(seeds)} seeds for an array of {len(rng)} models: give one per model")
        for index, value in enumerate(seeds):
            rng[index, 0] = stream_key(int(value), place)
            rng[index, 1] = 0


def _all_streams(array: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every random stream of `array`, int64 `[B, 2]`, by name: those of layers, then those of functions."""
    found = {f"{name}.rng".lstrip("."): stream.rng for name, stream in streams(array)}
    for name, module in array.named_modules():
        if module._buffers.get(FUNCTION_STREAM) is not None:
            found[f"{name}.{FUNCTION_STREAM}".lstrip(".")] = module._buffers[FUNCTION_STREAM]
    return found


def get_rng_state(array: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Where the random streams of `array` are, `[B, 2]` each, by name; a `state_dict` has torch's keys and not them.

    Saved beside the `state_dict` it lets a later run draw the masks and numbers that this one would have drawn.
    """
    return {name: rng.clone() for name, rng in _all_streams(array).items()}


@torch.no_grad()
def set_rng_state(array: torch.nn.Module, state: dict[str, torch.Tensor]) -> None:
    """Puts the random streams of `array` where `get_rng_state` found them.

    Raises InvalidArgument for the state of another kind of array, or of more or fewer models.
    """
    held = _all_streams(array)
    if held.keys() != state.keys() or any(held[name].shape != rng.shape for name, rng in state.items()):
        raise InvalidArgument(
            f"the state has streams {sorted(state)}, the array {sorted(held)}: it must be of as many "
            "models of the same kind"
        )
    for name, rng in state.items():
        held[name].copy_(rng)
