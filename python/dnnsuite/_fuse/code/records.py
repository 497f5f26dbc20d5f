# SPDX-License-Identifier: MIT
"""Records that code takes and returns tensors in: dataclasses and namespaces."""

from __future__ import annotations

import types
from typing import Any


def is_record(value: Any) -> bool:
    """Return True for a dataclass's object, or a namespace."""
    return type(value) is types.SimpleNamespace or (
        hasattr(value, "__dataclass_fields__") and not isinstance(value, type)
    )


def names_of_record(value: Any) -> list[str]:
    """Name the fields of a record."""
    return list(vars(value) if type(value) is types.SimpleNamespace else value.__dataclass_fields__)
