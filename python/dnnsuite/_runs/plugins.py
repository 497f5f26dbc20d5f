# SPDX-License-Identifier: MIT
"""A user's own jobs: modules that register them when they are imported, and what their code raises."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

from ..errors import Error, InvalidArgument

_files: set[str] = set()  # of the modules that were imported


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
            _files.add(str(importlib.import_module(name).__file__))
        except Error:
            raise
        except ImportError as error:
            raise InvalidArgument(f"--plugin {name}: {error}") from error
        except (Exception, SystemExit) as error:  # of the user's code
            raise InvalidArgument(f"--plugin {name}: {told(error)}") from error


def said_of_plugin(error: BaseException) -> str:
    """Return an error of a plugin's code in one line, with the place there; "" where none of it was running."""
    frames = traceback.extract_tb(error.__traceback__)
    place = next((i for i in reversed(range(len(frames))) if frames[i].filename in _files), None)
    return "" if place is None else told(error, place)


def told(error: BaseException, place: int = -1) -> str:
    """Return an error in one line, with the file and line of the frame at `place` of its traceback."""
    frame = traceback.extract_tb(error.__traceback__)[place]
    where = "" if isinstance(error, SyntaxError) else f" ({Path(frame.filename).name}, line {frame.lineno})"
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"


def _refuse_file(name: str) -> None:
    """Refuse the path of a file in place of a module's name."""
    path = Path(name)
    if path.suffix == ".py" or len(path.parts) > 1:
        folder = "" if path.parent == Path() else f", with PYTHONPATH={path.parent}"
        raise InvalidArgument(f"--plugin {name}: expected the name of a module: --plugin {path.stem}{folder}")
