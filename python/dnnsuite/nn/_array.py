# SPDX-License-Identifier: MIT
"""Namespace `nn` for a given B, one model definition for a plain model and for an array; and products in 16 bits with
parameters, gradients and everything else in 32.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from ..errors import InvalidArgument, did_you_mean, some_of
from ._attention import MultiheadAttention
from ._linear import Linear
from ._rnn import RecurrentLayer
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


PRODUCTS = (Linear, MultiheadAttention, RecurrentLayer)
"""Layers that spend their time in matrix products, also inside transformer layers."""

_POSSIBLE = (torch.bfloat16, torch.float16)


def compute_dtype(
    array: torch.nn.Module, dtype: torch.dtype | None, layers: type[Any] | tuple[type[Any], ...] = PRODUCTS
) -> torch.nn.Module:
    """Make the layers of `array` that belong to the classes `layers` compute in `dtype`; None undoes this. Returns
    `array`.

    Inputs and parameters are rounded to `dtype` for the product, which sums in float32, and the result is converted
    back; parameters, gradients and optimizer state keep their dtype. `layers` are classes with an attribute
    `compute_dtype`; by default `Linear`, the projections of attention, and the input products of recurrent layers. For
    convolutions too, pass `(nn.Linear, nn.Conv2d)`. On a processor with bfloat16 instructions large products become
    faster (`benchmarks/ops/bench_compute_dtype.py`) and small ones slower.
    """
    if dtype is not None and dtype not in _POSSIBLE:
        raise InvalidArgument(f"compute_dtype must be torch.bfloat16, torch.float16 or None, not {dtype}")
    classes = layers if isinstance(layers, tuple) else (layers,)
    for cls in classes:
        if not hasattr(cls, "compute_dtype"):
            raise InvalidArgument(
                f"{cls.__name__} cannot compute in another dtype than its parameters'; Linear, MultiheadAttention, "
                "recurrent layers and convolutions can"
            )
    root = vars(array).get("_root", array)  # a fused model may be one layer
    for module in root.modules():
        if isinstance(module, classes):
            module.compute_dtype = dtype
    return array
