# SPDX-License-Identifier: MIT
"""A user's own jobs: modules that register them when they are imported."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

from ..errors import Error, InvalidArgument


def import_plugins(names: Iterable[str], paths: Iterable[str] = ()) -> None:
    """Import the modules that register a user's own jobs.

    Args:
        names: modules to import.
        paths: folders to look in beside `sys.path`.

    Raises:
        InvalidArgument: a module cannot be imported, or its code raises; the message has the file and line.
    """
    sys.path.extend(path for path in paths if path not in sys.path)
    for name in names:
        _refuse_file(name)
        try:
            importlib.import_module(name)
        except Error:
            raise
        except ImportError as error:
            raise InvalidArgument(f"--plugin {name}: {error}") from error
        except (Exception, SystemExit) as error:  # of the user's code
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = "" if isinstance(error, SyntaxError) else f" ({Path(place.filename).name}, line {place.lineno})"
            raise InvalidArgument(f"--plugin {name}: {type(error).__name__}: {error}{where}") from error


def _refuse_file(name: str) -> None:
    """Refuse the path of a file in place of a module's name."""
    path = Path(name)
    if path.suffix == ".py" or len(path.parts) > 1:
        folder = "" if path.parent == Path() else f", with PYTHONPATH={path.parent}"
        raise InvalidArgument(f"--plugin {name}: expected the name of a module: --plugin {path.stem}{folder}")
