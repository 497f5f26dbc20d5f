# SPDX-License-Identifier: MIT
"""The result of one check."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple


class Finding(NamedTuple):
    """Finding: a status (`ok`, `warning`, `missing`), the detail, and the way out."""

    status: str
    detail: str
    remedy: str = ""


ok = partial(Finding, "ok")
warning = partial(Finding, "warning")  # it works, but not as well as it could, or not well enough for measurements
missing = partial(Finding, "missing")


def read(path: Path | str) -> str | None:
    """Return the text of a file of the kernel, without the newline; None where it is absent or forbidden."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
