# SPDX-License-Identifier: MIT
"""A configuration that notes which of its values are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _noting(method: str) -> Any:
    """Return a dict's method that notes the name that it is given; all names, if it is given none."""

    def noted(self: WatchedConfig, *given: Any) -> Any:
        self.read.update(given[:1] or dict.keys(self))
        return getattr(dict, method)(self, *given)

    return noted


class WatchedConfig(dict[str, Any]):
    """A configuration that notes which of its values are read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    __getitem__, get, pop = map(_noting, ("__getitem__", "get", "pop"))
    __iter__, keys, items, values, copy = map(_noting, ("__iter__", "keys", "items", "values", "copy"))
