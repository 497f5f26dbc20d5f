# SPDX-License-Identifier: MIT
"""The result of one check."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Finding(NamedTuple):
    """Finding: a status (`ok`, `warning`, `missing`), the detail, and the way out."""

    status: str
    detail: str
    remedy: str = ""


def ok(detail: str) -> Finding:
    return Finding("ok", detail)


def warning(detail: str, remedy: str) -> Finding:
    """Make a finding of something that works, but not as well as it could, or not well enough for measurements."""
    return Finding("warning", detail, remedy)


def missing(detail: str, remedy: str) -> Finding:
    return Finding("missing", detail, remedy)


def read(path: Path | str) -> str | None:
    """Return the text of a file of the kernel, without the newline; None where it is absent or forbidden."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
