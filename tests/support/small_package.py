# SPDX-License-Identifier: MIT
"""A small package, written for a test of the reader of imports."""

from pathlib import Path

from import_graph import Graph


def tree(folder: Path, **sources: str) -> Graph:
    """A package `house` of these modules; `__` in a name stands for a folder."""
    for name, text in {"": "", **sources}.items():
        path = folder / "house" / (name.replace("__", "/") or "__init__")
        path = path / "__init__.py" if text.startswith("# package") else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Graph(folder / "house")
