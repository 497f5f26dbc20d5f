# SPDX-License-Identifier: MIT
"""Torch's compiler, told to leave functions alone without being imported."""

from __future__ import annotations

import importlib.util
from typing import Any

from .lookup import note_lost

__all__ = ["DYNAMO", "made_by_dynamo", "not_compiled"]

try:
    _has_dynamo = importlib.util.find_spec("torch._dynamo") is not None
except (ImportError, ValueError):
    _has_dynamo = False
if not _has_dynamo:
    note_lost("compiler")

DYNAMO = "torch._dynamo" if _has_dynamo else "torch"
"""The module that is loaded once torch.compile is in use; one that is always loaded where that cannot be known."""


def not_compiled(function: Any) -> Any:
    """Mark a function that torch.compile leaves as it is, without importing the compiler."""
    function._torchdynamo_disable = True
    return function


def made_by_dynamo(module: Any) -> bool:
    """True if `module` is what `torch.compile` makes of a module."""
    return any(kind.__module__.startswith("torch._dynamo") for kind in type(module).__mro__)
