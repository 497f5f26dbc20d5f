# SPDX-License-Identifier: MIT
"""Rules of --resume: which runs are not made again, and which directories may not be continued."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import InvalidArgument
from .failures import FINAL
from .record import RunRecord


def final(record: RunRecord) -> bool:
    """True if --resume keeps a run: it ended well, or with a failure that would come again."""
    return record.ok or record.verdict.failure in FINAL


def refuse_other_settings(root: Path, odd: Sequence[str]) -> None:
    """Refuse to continue a plan that was begun with other settings or in another environment.

    Args:
        odd: differences as sentences; without any nothing is refused.

    Raises:
        InvalidArgument: there is a difference.
    """
    if odd:
        raise InvalidArgument(
            f"--resume: {root} was made with other settings: {'; '.join(odd)}; "
            "give the same options (or none), or choose another --out"
        )
