# SPDX-License-Identifier: MIT
"""Undo max pools with the indices of their maxima. The samples of all models are one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ._samples import each_sample, named


def _unpool(plain: Callable[..., Any], dims: int, shape: str) -> Callable[..., Tensor]:
    """Make a function that undoes a pool of samples; images with the channels last stay so."""

    def unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        def samples(x: Tensor, i: Tensor) -> Tensor:
            last = dims == 2 and all(t.is_contiguous(memory_format=torch.channels_last) for t in (x, i))
            laid = (t if last else t.contiguous() for t in (x, i))
            result: Tensor = plain(*laid, kernel_size, stride, padding, output_size)
            return result

        result: Tensor = each_sample(samples, plain.__name__, dims, input, indices)
        return result

    return named(unpool, plain.__name__, f"of input and indices `[B, N, C, {shape}]`, or without N.")


max_unpool1d, max_unpool2d = _unpool(F.max_unpool1d, 1, "L"), _unpool(F.max_unpool2d, 2, "H, W")
max_unpool3d = _unpool(F.max_unpool3d, 3, "D, H, W")
