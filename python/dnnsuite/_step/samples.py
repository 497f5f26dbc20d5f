# SPDX-License-Identifier: MIT
"""Warning of a batch that was probably meant for all models but gives each of them one sample."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from .._torch import tree_leaves


def warn_of_single_samples(batch: tuple[Any, ...], B: int) -> None:
    """Warn if the tensors `[B, ...]` of `batch` look like one batch of B samples without `dnnsuite.stack`: if a tensor
    has one number per model, usually a label, and none shows more than one sample.
    """
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
    if B > 1 and len(tensors) > 1 and _single_samples(tensors):
        shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors)
        warnings.warn(
            f"each of the {B} models trains on one sample without a batch dimension (the batch is {shapes}); if "
            f"these are {B} samples for all models, pass dnnsuite.stack(batch, B={B})",
            stacklevel=3,
        )


def _single_samples(tensors: Sequence[torch.Tensor]) -> bool:
    numbers = [tensor for tensor in tensors if tensor.dim() == 1]
    labels = any(not tensor.is_floating_point() for tensor in numbers)
    flat = all(tensor.dim() <= 2 for tensor in tensors)
    return bool(numbers) and (labels or flat) and not any(tensor.stride(0) == 0 for tensor in tensors)
