# SPDX-License-Identifier: MIT
"""Where dtypes meet: under autocast a matrix product gives 16 bits and a norm's parameters stay in 32."""

from __future__ import annotations

from typing import overload

import torch

_SIXTEEN_BIT = (torch.bfloat16, torch.float16)


@overload
def match(x: torch.Tensor, like: torch.Tensor | None) -> torch.Tensor: ...
@overload
def match(x: None, like: torch.Tensor | None) -> None: ...
def match(x: torch.Tensor | None, like: torch.Tensor | None) -> torch.Tensor | None:
    """`x` in the dtype of `like`, as our operators want their inputs; None stays None."""
    return x if x is None or like is None or x.dtype == like.dtype else x.to(like.dtype)


def computable(x: torch.Tensor) -> torch.Tensor:
    """`x` in a dtype that the operators have on its device: on a CPU 16 bits become 32."""
    return x.float() if x.dtype in _SIXTEEN_BIT and x.device.type == "cpu" else x
