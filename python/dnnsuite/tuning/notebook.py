# SPDX-License-Identifier: MIT
"""Live table of a sweep below the cell of a notebook that runs it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def in_notebook() -> bool:
    """True in a Jupyter kernel; a shell of IPython is a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def table_html(columns: Sequence[str], rows: Iterable[Sequence[str]], line: str) -> str:
    """Return a line and a table, as HTML."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<p>{escape(line)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class LiveTable:
    """Piece of HTML in a cell's output, replaced as it changes."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, html: str) -> None:
        """Show `html` where the last one was."""
        from IPython.display import HTML, display  # type: ignore[import-not-found,unused-ignore]

        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        else:
            self._handle.update(HTML(html))
