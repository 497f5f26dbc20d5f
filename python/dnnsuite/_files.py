# SPDX-License-Identifier: MIT
"""Files that are whole or absent: written under a temporary name, then renamed.

A temporary name tells whose it is, so that what a dead process left can be told from what a live one is writing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from .errors import Error, reason

SUM = "sum"  # column of checksums
TEMPORARY = ".tmp-"  # how the names of unfinished files and directories begin
PLAN_LOCK = ".lock"  # file in the directory of a plan that says whose it is
_OWNED = re.compile(re.escape(TEMPORARY) + r"(\d+)(?:\.([0-9a-f]{8}))?-")
_FORGOTTEN_S = 24 * 3600.0  # without a change of what a process elsewhere has left


class OutputError(Error):
    """Raised when results cannot be written: the disk is full, or the directory is not writable."""


class Unsealed(Error):
    """Raised for values that were edited or damaged after they were written."""


def cache_folder() -> Path:
    """Return the folder for files that can be made again: `$DNNSUITE_CACHE`, else `~/.cache/dnnsuite`."""
    return Path(os.environ.get("DNNSUITE_CACHE") or os.path.expanduser("~/.cache/dnnsuite"))


@cache
def place() -> str:
    """Return a name of the machine, and of its processes' numbers: those of another container are not ours."""
    parts = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    try:
        return f"{parts[0].read_text().strip()}-{parts[1].readlink().name}"
    except OSError:
        return os.uname().nodename


def runs_here(pid: int) -> bool:
    """True if a process of this number runs at this place."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


@cache
def _short_place() -> str:
    return hashlib.blake2b(place().encode(), digest_size=4).hexdigest()


def temporary_name(name: str) -> str:
    """Return the name under which this process makes the file or directory `name`."""
    return f"{TEMPORARY}{os.getpid()}.{_short_place()}-{name}"


def final_name(temporary: str) -> str:
    """Return the name that what has this temporary name is to get."""
    return _OWNED.sub("", temporary, count=1).removeprefix(TEMPORARY)


def is_abandoned(path: Path) -> bool:
    """True for what a process that runs no more, or this one, has left under a temporary name.

    Of a process of another machine it counts as left when it has not changed for a day; what names no process is
    nobody's to remove.
    """
    owner = _OWNED.match(path.name)
    if owner is None:
        return False
    if owner[2] in (None, _short_place()):
        return int(owner[1]) == os.getpid() or not runs_here(int(owner[1]))
    try:
        return time.time() - path.lstat().st_mtime > _FORGOTTEN_S
    except OSError:
        return False


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; it becomes `path` at the end, or is removed when the body fails.

    Raises:
        OutputError: for any OSError, naming `path`.
    """
    temporary = path.with_name(temporary_name(path.name))
    try:
        try:
            yield temporary
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {reason(error)}") from error


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a folder under a temporary name that takes the place of `path` once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(temporary_name(path.name))
    try:
        yield temporary
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write `value` as JSON, whole or not at all; NaN and infinities, which JSON has not, become null.

    Args:
        indent: spaces of a level; None for one line, which is written ten times as fast.
    """
    write_text(path, json_text(value, indent))


def json_text(value: Any, indent: int | None = 1) -> str:
    """Return what :func:`write_json` writes."""
    try:
        text = json.dumps(value, indent=indent, default=str, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), indent=indent, default=str, allow_nan=False)
    return text + "\n"


def sealed(value: Mapping[str, Any], indent: int | None = None) -> str:
    """Return values as JSON with a checksum of them, `sum`, which :func:`unsealed` compares."""
    text = json_text(value, None)[:-1]
    own = checksum(text)
    return f'{text[:-1]}, "sum": "{own}"}}' if indent is None else json_text({**value, "sum": own}, indent)


def unsealed(value: Any) -> Any:
    """Return what :func:`sealed` was given; values without a checksum, as of earlier versions, are taken as they are.

    Raises:
        Unsealed: a value has changed since; the message has the way out.
    """
    if not isinstance(value, dict) or "sum" not in value:
        return value
    value = dict(value)
    told = value.pop("sum")
    if told != checksum(json.dumps(value)):
        raise Unsealed(
            "it was changed after it was written (its checksum differs): restore it; or remove its entry 'sum', which "
            "takes it as it is"
        )
    return value


def checksum(value: str | bytes) -> str:
    """Return 16 digits that tell another text, or other bytes, from these."""
    return hashlib.blake2b(value.encode() if isinstance(value, str) else value, digest_size=8).hexdigest()


def sums_of(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Checksums of the lines after the first: each is of the first one and all before it, too, and of their number."""
    so_far = "\x1f".join([str(len(lines)), *lines[0]])
    for line in lines[1:]:
        so_far = hashlib.blake2b("\x1f".join([so_far, *line]).encode(), digest_size=4).hexdigest()
        yield so_far


def check_sums(lines: Sequence[tuple[int, Sequence[str]]]) -> None:
    """Refuse a table whose last column, `sum`, is not :func:`sums_of` the others; one without it is taken as it is.

    Args:
        lines: (number, cells) of each.

    Raises:
        ValueError: a line differs; the message has its number and the way out.
    """
    if not lines or list(lines[0][1][-1:]) != [SUM]:
        return
    for (number, line), own in zip(lines[1:], sums_of([line[:-1] for _, line in lines]), strict=True):
        if line[-1] != own:
            raise ValueError(
                f"line {number} was changed, or a line was removed, after it was written (its checksum differs): "
                f"restore it; or take out the column {SUM!r}, which takes the table as it is"
            )


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


def regular(path: Path) -> Path:
    """Return `path`, a file that ends: no pipe and no device, whose reader could wait for ever.

    Raises:
        OSError: it is such a thing, or is not there. A folder passes.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "not a file but a pipe or a device", str(path))
    return path


def whole_lines(path: Path) -> Path:
    """Return `path`, a file of lines that ends with its last line: a file that was cut may end within a number.

    Raises:
        OSError: it is no such file, or not there.
        ValueError: it ends in the middle of a line.
    """
    with open(regular(path), "rb") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) not in (b"\n", b"\r"):
                raise ValueError("it ends in the middle of a line, as if it was cut; if its last line is whole, end it")
    return path


def unchanged(path: Path) -> Path:
    """Return `path`, a CSV table with checksums that is as it was written; one without them is taken as it is.

    Raises:
        OSError, ValueError: it was edited or cut, or is not there.
    """
    lines = whole_lines(path).read_text(encoding="utf-8").splitlines()
    check_sums([(number, line.split(",")) for number, line in enumerate(lines, 1)])
    return path


def read_json(path: Path) -> Any:
    """Read the value in a JSON file.

    Raises:
        Error: the file is missing or damaged; the message names it.
    """
    try:
        return json.loads(regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Error(f"{path}: {reason(error)}") from error


def read_sealed(path: Path) -> Any:
    """Read the values in a file with the text of :func:`sealed`.

    Raises:
        Error: as :func:`read_json`.
        Unsealed: it was edited; the message names the file.
    """
    try:
        return unsealed(read_json(path))
    except Unsealed as error:
        raise Unsealed(f"{path}: {error}") from error


def read_tail(path: Path, size: int = 4096) -> str:
    """Read the end of a text file; empty if there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
