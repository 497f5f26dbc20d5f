# SPDX-License-Identifier: MIT
"""Arguments of an operator, as torch's profiler has recorded them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any


class RecordedArguments:
    """Arguments of one recorded event.

    An operator that TorchScript's interpreter calls, as in the replay of a step, is recorded with the interpreter's
    whole stack: its own arguments are the last.
    """

    def __init__(self, event: Any) -> None:
        self._event = event
        count = argument_count(event.name(), getattr(event, "overload_name", str)())
        self._foreign = max(0, len(event.shapes()) - count) if count is not None else 0

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        """Shapes of the tensors; empty for other arguments."""
        return self._own(self._event.shapes())

    @property
    def values(self) -> Sequence[Any]:
        """Values of the other arguments; None for a tensor."""
        return self._own(self._event.concrete_inputs())

    @property
    def nested_shapes(self) -> Sequence[Any]:
        """Shapes, and lists of shapes for lists of tensors."""
        return self._own(self._event.structured_input_shapes())

    @property
    def nested_strides(self) -> Sequence[Any]:
        """Strides in the places of `nested_shapes`."""
        return self._own(self._event.structured_input_strides())

    @property
    def dtypes(self) -> Sequence[str]:
        """Names of C++ types."""
        return self._own(self._event.dtypes())

    def _own(self, recorded: Sequence[Any]) -> Sequence[Any]:
        return recorded[self._foreign :]


@functools.lru_cache(maxsize=4096)
def argument_count(name: str, overload: str = "") -> int | None:
    """Return the number of arguments of an overload of operator `name`, as `aten::mm`; None if there is none."""
    import torch

    namespace, _, operator = name.partition("::")
    found = getattr(getattr(torch.ops, namespace, None), operator, None) if operator else None
    schema = getattr(getattr(found, overload or "default", None), "_schema", None)
    return None if schema is None else len(schema.arguments)
