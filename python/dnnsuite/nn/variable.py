# SPDX-License-Identifier: MIT
"""`torch.autograd.Variable(x)` in the code of one model: it calls no torch function, only the operator `detach`."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from .._torch import hidden_from_function_modes
from .sharing import is_shared, own

can_follow_variables = hidden_from_function_modes is not contextlib.nullcontext
"""False where torch does not tell what code has asked of the tensor that it sees."""


class Variable:
    """Layer of a `Deferred` that nothing joins: it detaches its input, and lets it take a gradient if code asked.

    torch sets `requires_grad` on what code sees after `detach` has returned it, and tells nobody: `seen` is looked at
    when its value is needed.
    """

    activations: frozenset[str] = frozenset()
    adds_residual = False

    def __init__(self) -> None:
        self.seen: Any = None

    def forward(self, source: Any) -> torch.Tensor:
        x: torch.Tensor = source.value
        with hidden_from_function_modes():
            asked = self.seen.requires_grad
        self.seen = None
        if not asked:
            return x.detach()
        return (own(x) if is_shared(x) else x).detach().requires_grad_()

    def before_maximum(self, x: torch.Tensor) -> frozenset[str]:
        return frozenset()
