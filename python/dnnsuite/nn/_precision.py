# SPDX-License-Identifier: MIT
"""Mixed dtypes: under autocast a matrix product gives 16 bits and a norm's parameters stay in 32."""

from __future__ import annotations

from typing import overload

import torch

from ..ops.shared import once

SIXTEEN_BIT = (torch.bfloat16, torch.float16)


@overload
def match(x: torch.Tensor, like: torch.Tensor | None) -> torch.Tensor: ...
@overload
def match(x: None, like: torch.Tensor | None) -> None: ...
def match(x: torch.Tensor | None, like: torch.Tensor | None) -> torch.Tensor | None:
    """`x` in the dtype of `like`, as our operators want their inputs; None stays None."""
    return x if x is None or like is None else cast(x, like.dtype)


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`x` in `dtype`; what all models share is cast once."""
    return x if x.dtype == dtype else once(lambda one: one.to(dtype), x)


def computable(x: torch.Tensor) -> torch.Tensor:
    """`x` in a dtype that the operators have on its device: on a CPU 16 bits become 32."""
    return cast(x, torch.float32) if x.dtype in SIXTEEN_BIT and x.device.type == "cpu" else x


def widened(x: torch.Tensor, *others: torch.Tensor | None) -> torch.Tensor:
    """Return `x` in 32 bits if it has 16 and one of `others` has 32: under autocast a residual stream keeps 32."""
    if x.dtype in SIXTEEN_BIT and any(other is not None and other.dtype == torch.float32 for other in others):
        return x.float()
    return x


def promoted(gates: torch.Tensor, state: torch.Tensor) -> torch.dtype:
    """The dtype of a state that `gates` are added to: under autocast on a CPU torch leaves one of 32 bits as it is."""
    return torch.promote_types(gates.dtype, state.dtype) if gates.device.type == "cpu" else gates.dtype
