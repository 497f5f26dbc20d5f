# SPDX-License-Identifier: MIT
"""A part of an array, as an array of its own that shares the storage."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from ._fuse import Mapped
from .nn._base import ArrayModule
from .optim import ArrayOptimizer

LossFunction = Callable[..., torch.Tensor]
Vectors = Sequence[Mapping[str, torch.Tensor]]


class Shard:
    """Models `start` to `start + length` of an array, with the matching part of its optimizer.

    Parameters, buffers, random streams and optimizer state are views of the array's, so training the shard trains the
    array. Gradients are the shard's own.
    """

    def __init__(
        self,
        array: torch.nn.Module,
        optimizer: ArrayOptimizer,
        loss_function: LossFunction,
        start: int,
        length: int,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.start, self.length = start, length
        self._optimizer, self._loss_function, self._scaler = optimizer, loss_function, scaler
        views = _views(array, start, length)
        self.array = _narrow(array, views, start, length)
        self._groups: list[dict[str, Any]] = []
        self._state: dict[torch.Tensor, dict[str, Any]] = {}
        for group in optimizer.param_groups:
            self._groups.append(self._narrow_group(group, views))

    def _narrow_group(self, group: dict[str, Any], views: dict[int, torch.Tensor]) -> dict[str, Any]:
        params = []
        self._optimizer.init_state(group, group["params"], self._optimizer.state)
        for parameter in group["params"]:
            view = views[id(parameter)]
            state = self._optimizer.state[parameter]
            self._state[view] = {name: self.narrow(value) for name, value in state.items()}
            params.append(view)
        return {**group, "params": params, "steps": self.narrow(group["steps"])}

    def narrow(self, tensor: torch.Tensor) -> torch.Tensor:
        """This shard's part of a tensor `[B, ...]`."""
        return tensor.narrow(0, self.start, self.length)

    def step(self, batch: Sequence[Any], vectors: Vectors) -> torch.Tensor:
        """One training step on this shard's part of `batch`; returns its losses `[length]`.

        `vectors` are the optimizer's hyper-parameters `[B]` of each group, as they were when the step was asked for.
        """
        losses = self._loss_function(
            self.array, *(self.narrow(x) if isinstance(x, torch.Tensor) else x for x in batch)
        )
        if self._scaler is None:
            losses.sum().backward()
            self._update(vectors)
        else:
            self._scaler.scale(losses.sum()).backward()
            # The scaler asks for an optimizer only to see its gradients and to call or to skip its step.
            update: Any = SimpleNamespace(param_groups=self._groups, step=lambda: self._update(vectors))
            self._scaler.step(update)
            self._scaler.update()
        for group in self._groups:
            for parameter in group["params"]:
                parameter.grad = None
        return losses.detach()

    @torch.no_grad()
    def _update(self, vectors: Vectors) -> None:
        for group, own in zip(self._groups, vectors, strict=True):
            hyper = {name: self.narrow(value) for name, value in own.items()}
            self._optimizer.update(group, group["params"], self._state, hyper)


def _views(array: torch.nn.Module, start: int, length: int) -> dict[int, torch.Tensor]:
    """Every tensor of `array` that has a dimension for the models, by identity, as a view of some of them.

    `.data` and not `.detach()`: autograd must not see another shard's update as a change of this one's
    tensors, and only `.data` starts a version counter of its own.
    """
    views: dict[int, torch.Tensor] = {}
    for module in array.modules():
        shared = module.shared_buffers if isinstance(module, ArrayModule) else ()
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) not in views:
                part = parameter.data.narrow(0, start, length)
                views[id(parameter)] = torch.nn.Parameter(part, requires_grad=parameter.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in shared:
                views[id(buffer)] = buffer.data.narrow(0, start, length)
    return views


def _narrow(
    array: torch.nn.Module, views: dict[int, torch.Tensor], start: int, length: int
) -> torch.nn.Module:
    """A copy of the module tree around the views."""
    part = copy.deepcopy(array, dict(views))
    for module in part.modules():
        if isinstance(module, (ArrayModule, Mapped)):
            module.B = length
        if isinstance(module, ArrayModule):
            for name in module.per_model_lists:
                setattr(module, name, getattr(module, name)[start : start + length])
    return part
