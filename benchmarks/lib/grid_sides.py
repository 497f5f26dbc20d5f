# SPDX-License-Identifier: MIT
"""Both sides of a cell of `grid.py`: the layer of an array, and torch's layers that a loop goes through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from grid_cells import Space
from pairwise import Values

import dnnsuite

OURS = "ours"
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by the dimensions of images and volumes


@dataclass(frozen=True)
class Side:
    """Layers that are called in turn. Each has its inputs, and the gradient of its result."""

    layers: list[Callable[..., torch.Tensor]]
    inputs: list[list[torch.Tensor]]
    grads: list[torch.Tensor]
    parameters: list[torch.Tensor]

    def through(self) -> None:
        """Call each layer, and its backward before the next one."""
        for p in self.parameters:
            p.grad = None
        for layer, own, grad in zip(self.layers, self.inputs, self.grads, strict=True):
            for x in own:
                x.grad = None
            layer(*own).backward(grad)

    def clear(self) -> None:
        for t in [*self.parameters, *(x for own in self.inputs for x in own)]:
            t.grad = None

    def forward(self) -> list[torch.Tensor]:
        """Call all layers, and keep their results, as the layers behind them in a model do."""
        return [layer(*own) for layer, own in zip(self.layers, self.inputs, strict=True)]

    def backward(self, results: list[torch.Tensor]) -> None:
        for y, grad in zip(results, self.grads, strict=True):
            y.backward(grad)

    def apart(self) -> Side:
        """Give each layer its own copy of the inputs: what one has read the next does not find in the caches."""
        copies = [[x.detach().clone().requires_grad_(x.requires_grad) for x in own] for own in self.inputs]
        return replace(self, inputs=copies)


def sides(space: Space, values: Values, B: int) -> dict[str, Side]:
    """What is timed of one cell: ours, then torch's loop in each layout."""
    models = [space.layer(values) for _ in range(B)]
    shared = values["batch"] == "shared"
    first = [_tensor(shape) for shape in space.inputs(values)]
    inputs = [first if shared or i == 0 else [_tensor(s) for s in space.inputs(values)] for i in range(B)]
    differentiated = first[0].is_floating_point() and not (shared and any(True for _ in models[0].parameters()))
    laid_out = [[_last(x) if x.dim() in LAST else x for x in own] for own in inputs]
    handed_over = laid_out if space.images else inputs
    found = {
        OURS: _array(space, models, handed_over, shared, differentiated),
        "contiguous": _loop(models, inputs, differentiated),
    }
    if space.images:
        last = [space.layer(values).to(memory_format=LAST[first[0].dim()]) for _ in range(B)]
        found["channels last"] = _loop(last, laid_out, differentiated)
    return found


def _side(layers: list[Any], inputs: list[list[torch.Tensor]]) -> Side:
    grads = [torch.randn_like(layer(*own)) for layer, own in zip(layers, inputs, strict=True)]
    modules = [layer for layer in layers if isinstance(layer, torch.nn.Module)]
    return Side(layers, inputs, grads, [p for module in modules for p in module.parameters()])


def _tensor(shape: Any) -> torch.Tensor:
    if isinstance(shape[0], tuple):
        return torch.randint(shape[1], shape[0])
    return torch.randn(shape)


def _last(x: torch.Tensor) -> torch.Tensor:
    """Images [N, C, H, W] or volumes with the channels last in memory, also where they have a single one."""
    rows = x.movedim(1, -1).contiguous().flatten()
    return rows.view(*x.movedim(1, -1).shape).movedim(-1, 1)


def _alike(first: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if `other` is differentiated with the first: queries, keys and values."""
    return other.dim() == 4 and other.shape == first.shape and other.is_floating_point()


def _loop(models: list[torch.nn.Module], inputs: list[list[torch.Tensor]], differentiated: bool) -> Side:
    """The models one after the other."""
    leaves = [
        [x.detach().requires_grad_() if differentiated and (x is own[0] or _alike(own[0], x)) else x for x in own]
        for own in inputs
    ]
    return _side(models, leaves)


def _handed_over(space: Space, x: torch.Tensor) -> torch.Tensor:
    """Lay `[B, ...]` out as an array's convolution leaves it."""
    if space.images:
        return dnnsuite.nn.functional.convolution.channels_last(x)
    return x.transpose(-1, -2).contiguous().transpose(-1, -2) if space.lines else x


def layer_of(models: list[torch.nn.Module]) -> torch.nn.Module:
    """The layer of ours for B layers of torch; where there is none, their array."""
    ours = getattr(dnnsuite.nn, type(models[0]).__name__, None)
    return ours.from_models(models) if isinstance(ours, type) else dnnsuite.fuse(models)


def _array(
    space: Space, models: list[torch.nn.Module], inputs: list[list[torch.Tensor]], shared: bool, differentiated: bool
) -> Side:
    """Their array, on [B, ...]."""
    layer: Any = space.ours(models) if space.ours else layer_of(models)
    B = len(models)
    stacked = [
        dnnsuite.stack(own[0], B) if shared else _handed_over(space, torch.stack(own))
        for own in zip(*inputs, strict=True)
    ]
    first = inputs[0]
    for x, own in zip(stacked, first, strict=True):
        x.requires_grad_(differentiated and (own is first[0] or _alike(first[0], own)))
    return _side([layer], [stacked])
