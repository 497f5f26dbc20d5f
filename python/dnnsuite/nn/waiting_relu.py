# SPDX-License-Identifier: MIT
"""Deferred ReLU before a pooling: the pooling's pass computes both, and its backward pass costs nothing more."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.device import on_cpu
from .model_tensor import Deferred, ModelTensor


class _Relu:
    """Layer of a `Deferred` that only a pooling joins."""

    activations: frozenset[str] = frozenset()
    adds_residual = False

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)

    repeated = forward

    def before_maximum(self, x: Tensor) -> frozenset[str]:
        return frozenset()


_RELU = _Relu()


def waiting_relu(x: Tensor) -> ModelTensor | None:
    """Defer the ReLU of images or lines `[B, N, C, *]`; None for tensors that this package's operators do not pool."""
    if x.dim() not in (4, 5) or not on_cpu(x) or x.dtype not in (torch.float32, torch.float64):
        return None
    return ModelTensor(None, Deferred(_RELU, x, x.shape))


def input_of_relu(waiting: Deferred | None) -> Tensor | None:
    """Return the input of a deferred ReLU, to compute it together with its successor; None if it is no such ReLU."""
    if waiting is None or waiting.layer is not _RELU or waiting.grad != torch.is_grad_enabled():
        return None
    waiting.taken = True
    return waiting.x
