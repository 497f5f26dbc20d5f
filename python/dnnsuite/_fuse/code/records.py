# SPDX-License-Identifier: MIT
"""Records that code takes and returns tensors in: dataclasses and namespaces."""

from __future__ import annotations

import dataclasses
import types
from typing import Any


def is_record(value: Any) -> bool:
    """Return True for a dataclass's object, or a namespace."""
    return type(value) is types.SimpleNamespace or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )


def names_of_record(value: Any) -> tuple[str, ...]:
    """Name the fields of a record that have a value."""
    if type(value) is types.SimpleNamespace:
        return tuple(vars(value))
    return tuple(field.name for field in dataclasses.fields(value) if hasattr(value, field.name))
