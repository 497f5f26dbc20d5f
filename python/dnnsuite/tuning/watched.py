# SPDX-License-Identifier: MIT
"""A configuration that notes which of its values are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class WatchedConfig(dict[str, Any]):
    """A configuration that notes which of its values are read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        self.read.add(name)
        return super().pop(name, *default)

    def __iter__(self) -> Iterator[str]:
        self.read.update(super().keys())
        return super().__iter__()

    def keys(self) -> Any:
        self.read.update(super().keys())
        return super().keys()

    def items(self) -> Any:
        self.read.update(super().keys())
        return super().items()

    def values(self) -> Any:
        self.read.update(super().keys())
        return super().values()

    def copy(self) -> dict[str, Any]:
        self.read.update(super().keys())
        return dict(super().items())
