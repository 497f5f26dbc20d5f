# SPDX-License-Identifier: MIT
"""Namespace `nn` for a given B: one model definition for a plain model and for an array."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from ..errors import did_you_mean, some_of
from .array_module import ArrayModule, check_width


class ArrayNamespace:
    """Stand-in for `torch.nn` in which every layer is an array of B models; `nn.array(B)` returns one.

    A model definition that takes `nn` as an argument works for both: `mlp(nn.array(0))` has torch's own layers, and
    `mlp(nn.array(8))` has eight models fused. Element-wise layers without parameters are torch's own.

    >>> from dnnsuite import nn
    >>> def mlp(nn):
    ...     return nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    >>> mlp(nn.array(8))[0]
    Linear(in_features=784, out_features=64, bias=True, B=8)
    >>> mlp(nn.array(0))[0]
    Linear(in_features=784, out_features=64, bias=True)
    """

    _as_they_are = (
        *("Module", "Parameter", "Sequential", "ModuleList", "ModuleDict", "Identity"),
        *("ReLU", "ReLU6", "GELU", "SiLU", "Mish", "Tanh", "Sigmoid", "Hardswish", "Hardsigmoid", "Hardtanh"),
        *("LeakyReLU", "ELU", "SELU", "CELU", "Softplus", "Softsign", "LogSigmoid", "init", "functional"),
        *("Hardshrink", "Softshrink", "Tanhshrink", "Threshold"),
    )

    def __init__(self, B: int, layers: Mapping[str, type[ArrayModule]]) -> None:
        """`layers` are the array layers by name."""
        check_width(B)
        self.B, self._layers = B, layers

    def __getattr__(self, name: str) -> Any:
        if self.B == 0 or name in self._as_they_are:
            return getattr(torch.nn, name)
        layer = self._layers.get(name)
        if layer is not None:
            return functools.partial(layer, B=self.B)
        near = did_you_mean(name, self._layers)
        known = some_of(sorted(self._layers), "dnnsuite.nn")
        raise AttributeError(f"nn.array({self.B}) has no {name}{near}; it has torch's elementwise layers and {known}")

    def __repr__(self) -> str:
        return f"dnnsuite.nn.array({self.B})"
