# SPDX-License-Identifier: MIT
"""Tables of a module's public names: the reference reads sources, which do not spell out every layer."""

import importlib
import inspect
import re

_DIRECTIVE = re.compile(r"^::: (dnnsuite\.nn\S*)$", re.MULTILINE)


def with_tables(markdown: str) -> str:
    """Put a table of all names before the details of each module of layers."""
    return _DIRECTIVE.sub(lambda found: f"## All names of {found[1]}\n\n{table(found[1])}\n{found[0]}", markdown)


def table(module: str) -> str:
    """Markdown with a row for each class and function that the module exports."""
    home = importlib.import_module(module)
    names = sorted((name for name in home.__all__ if callable(getattr(home, name))), key=str.lower)
    rows = [f"| `{name}` | {_summary(name, getattr(home, name))} |\n" for name in names]
    return "| name | |\n|---|---|\n" + "".join(rows)


def _summary(name: str, member: object) -> str:
    if not (inspect.getmodule(member) or inspect).__name__.startswith("dnnsuite"):
        return f"torch's own `{name}`, which works on `[B, ...]` as it is"
    return " ".join((inspect.getdoc(member) or "").partition("\n\n")[0].split()).removesuffix(".").replace("|", r"\|")
