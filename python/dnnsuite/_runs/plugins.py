# SPDX-License-Identifier: MIT
"""A user's own jobs: modules that register them when they are imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable

from ..errors import InvalidArgument

__all__ = ["import_plugins"]


def import_plugins(names: Iterable[str], paths: Iterable[str] = ()) -> None:
    """Import the modules that register a user's own jobs.

    Args:
        names: modules to import.
        paths: folders to look in beside `sys.path`.

    Raises:
        InvalidArgument: a module cannot be imported.
    """
    sys.path.extend(path for path in paths if path not in sys.path)
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise InvalidArgument(f"--plugin {name}: {error}") from error
