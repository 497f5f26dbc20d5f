# SPDX-License-Identifier: MIT
"""The cache that `torch.nn.utils.parametrize.cached` fills, one for the whole process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch.nn.utils import parametrize

from .lookup import get

__all__ = ["caches_parametrizations", "own_parametrizations"]

_known = bool(get("parametrizations"))


def caches_parametrizations() -> bool:
    """Return True inside of `parametrize.cached`, in whichever thread that was entered."""
    return _known and parametrize._cache_enabled > 0


_NOTHING: AbstractContextManager[None] = nullcontext()


def own_parametrizations() -> AbstractContextManager[None]:
    """Context manager: keep what is cached already from the code inside, and the other way round.

    torch takes two copies of a module for one: its cache is that of the class that a parametrization has made.
    """
    return _other_cache() if caches_parametrizations() else _NOTHING


@contextmanager
def _other_cache() -> Iterator[None]:
    held, parametrize._cache = parametrize._cache, {}
    try:
        yield
    finally:
        parametrize._cache = held
