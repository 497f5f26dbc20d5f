# SPDX-License-Identifier: MIT
"""Batches for an array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import torch

from ..errors import InvalidArgument


@overload
def stack(batch: torch.Tensor | Sequence[torch.Tensor], B: int | None = None) -> torch.Tensor: ...
@overload
def stack(batch: Mapping[str, Any] | Sequence[Mapping[str, Any]], B: int | None = None) -> dict[str, Any]: ...


def stack(batch: Any, B: int | None = None) -> Any:
    """Make a batch `[B, ...]` for an array.

    Args:
        batch: one tensor that all models share, or a sequence of B tensors of one shape. A shared tensor is not copied
            (stride 0 in dimension 0) unless it is sparse. A mapping, or a sequence of B mappings, gives a dictionary of
            such batches; values in it that are not tensors are kept unchanged.
        B: number of models; required for a shared batch.

    Raises:
        InvalidArgument: B is missing or is not the number of tensors, the tensors have different shapes, or something
            else is given in place of a tensor.

    >>> import torch, dnnsuite
    >>> x = dnnsuite.stack(torch.ones(5, 8), B=3)
    >>> x.shape, x.stride()
    (torch.Size([3, 5, 8]), (0, 8, 1))
    >>> dnnsuite.stack({"input_ids": torch.ones(5, 8)}, B=3)["input_ids"].shape
    torch.Size([3, 5, 8])
    """
    if isinstance(batch, Mapping):
        return {name: stack(v, B) if isinstance(v, torch.Tensor) else v for name, v in batch.items()}
    if B is not None and (type(B) is not int or B < 1):
        what = repr(B) if isinstance(B, (int, float)) else f"a {type(B).__name__}"
        raise InvalidArgument(f"stack takes a batch and the number of models, B, 1 or more; got {what} for B")
    if isinstance(batch, torch.Tensor):
        if B is None:
            raise InvalidArgument("stack of one shared tensor needs the number of models: dnnsuite.stack(x, B=4)")
        if batch.layout == torch.strided:
            return batch.unsqueeze(0).expand(B, *batch.shape)
        batch = [batch] * B
    if not isinstance(batch, Iterable) or hasattr(batch, "__array__"):
        raise InvalidArgument(f"stack takes tensors, got a {type(batch).__name__}: torch.as_tensor makes one of it")
    parts = list(batch)
    if not parts or (B is not None and len(parts) != B):
        raise InvalidArgument(
            f"stack got {len(parts)} tensors for {B if B is not None else 'one or more'} models: give one for each "
            "model, and stack the parts of a batch one by one, dnnsuite.stack(x, B=4), dnnsuite.stack(y, B=4)"
        )
    if all(isinstance(part, Mapping) for part in parts):
        return _stacked_by_name(parts)
    _check_alike(parts)
    return torch.stack(parts)


def _stacked_by_name(batches: list[Mapping[str, Any]]) -> dict[str, Any]:
    for index, other in enumerate(batches):
        if other.keys() != batches[0].keys():
            raise InvalidArgument(f"batches 0 and {index} have different names: {[*batches[0]]} and {[*other]}")
    return {
        name: stack([batch[name] for batch in batches]) if isinstance(first, torch.Tensor) else first
        for name, first in batches[0].items()
    }


def _check_alike(tensors: list[Any]) -> None:
    """Refuse what is no tensor, and tensors of different shapes."""
    for index, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise InvalidArgument(
                "stack takes tensors or mappings of tensors, one or a list of one per model; got a "
                f"{type(tensor).__name__} in place {index}: stack the tensors of a tuple one by one; torch.as_tensor "
                "makes tensors of arrays"
            )
        if tensor.layout not in (torch.strided, torch.sparse_coo):
            raise InvalidArgument(
                f"tensor {index} has layout {tensor.layout}, of which torch stacks no tensors: give "
                "x.to_sparse_coo(), or keep a matrix that all models share as a buffer of theirs"
            )
        if tensor.shape != tensors[0].shape:
            raise InvalidArgument(f"tensors 0 and {index} differ: {list(tensors[0].shape)} and {list(tensor.shape)}")


def unstack(batch: torch.Tensor) -> list[torch.Tensor]:
    """List the B views of a batch `[B, ...]`, one per model.

    >>> import torch, dnnsuite
    >>> [part.tolist() for part in dnnsuite.unstack(torch.tensor([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    return list(batch.unbind(0))
