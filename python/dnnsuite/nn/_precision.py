# SPDX-License-Identifier: MIT
"""Mixed dtypes: under autocast a matrix product returns 16 bits, while a norm's parameters keep 32."""

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
    """Cast `x` to the dtype of `like`, because operators take inputs of one dtype; None stays None."""
    return x if x is None or like is None else cast(x, like.dtype)


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Cast `x` to `dtype`; a shared tensor is cast once."""
    return x if x.dtype == dtype else once(lambda one: one.to(dtype), x)


def computable(x: torch.Tensor) -> torch.Tensor:
    """Cast `x` to a dtype that the operators support on its device: on a CPU 16 bits become 32."""
    return cast(x, torch.float32) if x.dtype in SIXTEEN_BIT and x.device.type == "cpu" else x


def widened(x: torch.Tensor, *others: torch.Tensor | None) -> torch.Tensor:
    """Return `x` in 32 bits if it has 16 and one of `others` has 32: under autocast a residual stream keeps 32."""
    if x.dtype in SIXTEEN_BIT and any(other is not None and other.dtype == torch.float32 for other in others):
        return x.float()
    return x


def promoted(gates: torch.Tensor, state: torch.Tensor) -> torch.dtype:
    """Return the dtype of a state that `gates` are added to: under autocast on a CPU torch keeps a 32-bit state."""
    return torch.promote_types(gates.dtype, state.dtype) if gates.device.type == "cpu" else gates.dtype
