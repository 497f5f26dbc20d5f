# SPDX-License-Identifier: MIT
"""Products in 16 bits with parameters, gradients and everything else in 32."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InvalidArgument
from ._attention import MultiheadAttention
from ._linear import Linear
from ._rnn import RecurrentLayer

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
