# SPDX-License-Identifier: MIT
"""LoRA on convolutions of B models: neighbours of one rank are convolved together, each with its own filters alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, ClassVar

import torch
from peft.tuners.lora import layer as lora

from .. import nn
from .._fuse.layer_table import register
from ..nn.functional.convolution import channels_last
from ..ops.memory_order import by_memory_order
from ..ops.shared import beside
from .lora_layer import LoraLayer, rank_of


class _LoraConv(LoraLayer):
    """Convolution with rank filters of the base's size, then one of single taps.

    `lora_A` is `[B, R, in, *]` and `lora_B` `[B, out, R / groups, *]` with the largest rank R. Filters of zeros would
    not do for a smaller one: a library's convolution may sum in another order where there are more of them.
    """

    kind: ClassVar[Any]

    @classmethod
    def can_fuse(cls, models: Sequence[Any]) -> bool:
        """Return True for plain layers; those of a base in groups have to be of one rank."""
        groups = {model.base_layer.groups for model in models}
        ranks = {rank_of(model) for model in models}
        kinds = {type(part) for model in models for part in model.lora_A.values()}
        plain = kinds == {cls.kind.torch_class} and (groups == {1} or len(ranks) == 1)
        return plain and super().can_fuse(models)

    def _container(self, name: str, layer: Any, rank: int) -> torch.nn.Module:
        like = getattr(layer, name)[self.adapter]
        channels = (rank, layer.out_features) if name == "lora_B" else (layer.in_features, rank)
        settings = like.kernel_size, like.stride, like.padding, like.dilation, like.groups
        made = self.kind(*channels, *settings, like.bias is not None, device="meta", B=self.B)
        return torch.nn.ModuleDict({self.adapter: made})

    @staticmethod
    def _laid_out(name: str, parameter: torch.nn.Parameter) -> torch.nn.Parameter:
        parameter.data = _in_order(parameter.data)
        return parameter

    def recorded_values(self) -> tuple[Any, ...]:
        return tuple(self.ranks)  # by which the models are grouped

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.base_layer(x)
        if not self.enabled:
            return result
        x = self.lora_dropout[self.adapter](x.to(self.scale.dtype))
        found = [
            result[models] + self._product(x[models], models, rank) if rank else result[models]
            for models, rank in self._runs()
        ]
        # In the memory order of a model alone: sums that follow go along memory.
        y = found[0] if len(found) == 1 else by_memory_order(torch.cat, found, 0)
        return y.to(result.dtype)

    def _runs(self) -> Iterator[tuple[slice, int]]:
        """Yield neighbours of one rank: (models, rank)."""
        start = 0
        for rank, found in groupby(self.ranks):
            end = start + len(list(found))
            yield slice(start, end), rank
            start = end

    def _product(self, x: torch.Tensor, models: slice, rank: int) -> torch.Tensor:
        """Return the adapter's part for some models of one rank."""
        a, b = self.lora_A[self.adapter], self.lora_B[self.adapter]
        scale = beside(self.scale[models], x)
        bias = None if b.bias is None else b.bias[models] * self.scale[models].unsqueeze(1)
        filters, mixing = a.weight[models], b.weight[models]
        if rank < self.most:
            filters, mixing = _in_order(filters[:, :rank]), _in_order(mixing[:, :, :rank])
        convolve = getattr(nn.functional, f"conv{filters.dim() - 3}d")
        hidden = convolve(x, filters, None, a.stride, a.padding, a.dilation, a.groups)
        product: torch.Tensor = convolve(hidden * scale, mixing, bias, b.stride, b.padding, b.dilation, b.groups)
        return product


def _in_order(filters: torch.Tensor) -> torch.Tensor:
    """Lay filters `[B, O, I, *]` out in memory as convolutions take them."""
    return channels_last(filters) if filters.dim() in (5, 6) else filters.contiguous()


def _of(name: str) -> Any:
    """Make the class for B models of one of PEFT's convolutions."""
    own = {"torch_class": getattr(lora, name), "kind": getattr(nn, name), "__module__": __name__}
    made = type(f"Lora{name}", (_LoraConv,), {**own, "__doc__": f"`peft.tuners.lora.{name}` for B models."})
    register(made)
    return made


LoraConv1d, LoraConv2d, LoraConv3d = map(_of, ("Conv1d", "Conv2d", "Conv3d"))  # of inputs `[B, N, C, *]`
