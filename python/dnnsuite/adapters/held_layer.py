# SPDX-License-Identifier: MIT
"""Layers of a base that its models hold as they are: their weights are no floating-point numbers in one memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule


class HeldLayer(ArrayModule):
    """A frozen layer of the base: `[B, *, in]` to `[B, *, out]`. Its numbers are no state of the array."""

    def __init__(self, layer: torch.nn.Module, *, B: int) -> None:
        super().__init__(B)
        self.__dict__["layer"] = layer  # no part of the tree: nothing of it is stacked, saved or edited

    @classmethod
    def can_fuse(cls, models: Sequence[Any]) -> bool:
        """Return True for one frozen layer that all models hold."""
        first = models[0]
        return all(model is first for model in models) and not any(p.requires_grad for p in first.parameters())

    @classmethod
    def from_models(cls, models: Sequence[Any]) -> Any:
        return cls(models[0], B=len(models)).train(models[0].training)

    def to_model(self, index: int) -> Any:
        return self.layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(x)
        return found

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        weight = self.layer.weight
        like = torch.empty(0, dtype=weight.dtype, device=weight.device)
        if (fn(like).device, fn(like).dtype) != (like.device, like.dtype):
            raise InvalidArgument(
                "an array over a base that is quantized, or divided over processes, cannot be moved to another device "
                "or given another type: move the base, and adapt it there"
            )
        return super()._apply(fn, recurse)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = type(self)(self.layer, B=self.B).train(self.training)
        memo[id(self)] = made
        return made

    def extra_repr(self) -> str:
        return f"{self.layer}, B={self.B}"
