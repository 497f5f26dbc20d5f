# SPDX-License-Identifier: MIT
"""Batch sizes given on a command line."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidArgument


def parse(text: str | None) -> tuple[int, ...]:
    """Parse the numbers of `1,2,4`; none for None.

    Raises:
        InvalidArgument: it is no list of whole numbers from 1 on.
    """
    if text is None:
        return ()
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgument(f"--batch-sizes {text!r}: write whole numbers with commas, e.g. 1,2,4") from None
    if min(sizes) < 1:
        raise InvalidArgument(f"--batch-sizes {text!r}: a batch has one item or more")
    return sizes


def refuse_twice(sizes: Sequence[int]) -> None:
    """Raise InvalidArgument if a size is there twice."""
    if len(set(sizes)) < len(sizes):
        raise InvalidArgument(f"--batch-sizes: {','.join(map(str, sizes))} names one twice")
