# SPDX-License-Identifier: MIT
"""Answers of processes of their own, whose memory nothing before has touched."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from dnnsuite.errors import Error


def answer(ask: Callable[..., None], *args: Any, what: str) -> Any:
    """Call `ask(connection, *args)` in a fresh process and return what it sends.

    Args:
        what: name of the work, for the error.

    Raises:
        Error: the process ended without an answer.
    """
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=ask, args=(theirs, *args))
    process.start()
    theirs.close()
    try:
        return mine.recv()
    except EOFError:
        raise Error(f"{what} ended without an answer") from None
    finally:
        process.join()
