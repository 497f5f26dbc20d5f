# SPDX-License-Identifier: MIT
"""Convolution model by model, with the library's best kernel for one model."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from .. import ops
from .._torch import transforming
from ..ops.device import on_cpu
from ._models import each_model


def convolve_models(input: Tensor, weight: Tensor, bias: Tensor | None, geometry: ops.ConvolutionGeometry) -> Tensor:
    """Convolve each model's `[N, C, *]` of `input` with its own weight and bias."""
    watched = torch.compiler.is_compiling() or transforming()
    if on_cpu(input) and len(input) > 0 and not watched:
        with contextlib.suppress(RuntimeError):  # torch has a message of its own, below
            return ops.convolve_models(input, weight, bias, geometry)
    return each_model(lambda x, w, b: torch.convolution(x, w, b, *geometry), input, weight, bias)
