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
    """Let the layers of `array` of the classes `layers` compute in `dtype`; None ends it. Returns `array`.

    Inputs and parameters are rounded to `dtype` for the product, which sums in float32, and the result is converted
    back; parameters, gradients and optimizer state keep their dtype. `layers` are classes that have an attribute
    `compute_dtype`; the default is `Linear`, attention's projections and the inputs' products of recurrent layers.
    Convolutions can too: pass `(nn.Linear, nn.Conv2d)`. Large products get faster on a processor with bfloat16
    instructions (`benchmarks/ops/bench_compute_dtype.py`), small ones slower.
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
