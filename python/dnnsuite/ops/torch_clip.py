# SPDX-License-Identifier: MIT
"""torch's clipping on an array's parameters: each model separately.

`torch.nn.utils.clip_grad_norm_` computes one norm of all its tensors, which would couple the models of an array. Once
there is a layer of an array, its parts `get_total_norm` and `clip_grads_with_norm_` pass tensors of arrays to this
module, and all others to torch as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .._torch import take_over_clipping
from ..errors import InvalidArgument
from . import array_layers
from .clipping import clip_by_norms_, in_memory_order, total_norms


def take_over() -> None:
    """Let torch's clipping pass tensors of arrays to this module."""
    take_over_clipping(_get_total_norm, _clip_grads_with_norm)


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _of_arrays(tensors: Sequence[Tensor]) -> bool:
    """Return True if the tensors are parameters of arrays or their gradients; refuse a mixture with others."""
    wanted = {t.data_ptr() for t in tensors if t.numel()}
    found = wanted & set(_places())
    if found and found != wanted:
        raise InvalidArgument(
            f"{len(found)} of these tensors are those of an array of models and {len(wanted - found)} are not: clip "
            "the two by themselves, the array by dnnsuite.optim.clip_grad_norm_ or by torch's"
        )
    return bool(found)


def _places() -> Iterator[int]:
    for parameter in array_layers.parameters():
        yield parameter.data_ptr()
        if parameter.grad is not None:
            yield parameter.grad.data_ptr()


def _get_total_norm(
    original: Any, tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    tensors = _listed(tensors)
    if not _of_arrays(tensors):
        result: Tensor = original(tensors, norm_type, error_if_nonfinite, foreach)
        return result
    wide = any(t.dtype == torch.float64 for t in tensors)
    norms = total_norms(in_memory_order(tensors), norm_type, error_if_nonfinite)
    return norms.to(torch.float64 if wide else torch.float32)


def _clip_grads_with_norm(
    original: Any, parameters: Any, max_norm: Any, total_norm: Tensor, foreach: bool | None = None
) -> None:
    parameters = _listed(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    if not grads or not _of_arrays(grads):
        original(parameters, max_norm, total_norm, foreach)
    else:
        clip_by_norms_(grads, max_norm, total_norm)
