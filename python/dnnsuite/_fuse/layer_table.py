# SPDX-License-Identifier: MIT
"""Classes of torch modules that an array knows: by layer of `dnnsuite.nn`, as containers, or as they are."""

from __future__ import annotations

from typing import Any

import torch

from .. import nn
from ..nn.array_module import ArrayModule
from .code.sequential import Sequential

#: Array layer of each layer class of torch.
RULES: dict[Any, type[ArrayModule]] = {
    layer.torch_class: layer
    for layer in vars(nn).values()
    if isinstance(layer, type)
    and issubclass(layer, ArrayModule)
    and isinstance(layer.__dict__.get("torch_class"), type)
}
CONTAINERS: tuple[type[torch.nn.Module], ...] = (
    torch.nn.Sequential,
    Sequential,
    torch.nn.ModuleList,
    torch.nn.ModuleDict,
    torch.nn.ParameterList,
    torch.nn.ParameterDict,
)
#: Layers without parameters that work element by element, so they are right on `[B, ...]` unchanged.
ELEMENTWISE: tuple[type[torch.nn.Module], ...] = tuple(
    getattr(torch.nn, name)
    for name in [
        "Identity",
        "ReLU",
        "ReLU6",
        "GELU",
        "SiLU",
        "Mish",
        "Tanh",
        "Sigmoid",
        "Hardswish",
        "Hardsigmoid",
        "Hardtanh",
        "LeakyReLU",
        "ELU",
        "SELU",
        "CELU",
        "Softplus",
        "Softsign",
        "LogSigmoid",
        "Tanhshrink",
        "Softshrink",
        "Hardshrink",
        "Threshold",
    ]
)
