# SPDX-License-Identifier: MIT
"""Docstrings name things by a noun or a verb, and public ones say what a caller has to know."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import dnnsuite

PACKAGE = Path(dnnsuite.__file__).parent
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}

# A relative clause, a bare preposition or a pronoun is no name for a thing.
CLAUSE = re.compile(
    r"(What|Whether|How|Of|That|To be|Which|Who|Whose|Where|When|Why|As|Hear|Something|Everything|Those|These|There|It|"
    r"Nothing|Both|Not)\b"
)
DIALECT = re.compile(
    r"\bthat which\b|\bso many (models|samples|steps|of)\b|\bas it was asked for\b|\bin its turn\b"
)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documented() -> Iterator[tuple[str, Documented, str]]:
    """(place, node, docstring) of everything that has one."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, Documented) and (text := ast.get_docstring(node)):
                name = getattr(node, "name", "module")
                yield f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)} {name}", node, text


DOCUMENTED = list(documented())


def summary(text: str) -> str:
    """The first paragraph, in one line."""
    return " ".join(text.partition("\n\n")[0].split())


def test_no_docstring_begins_with_a_relative_clause() -> None:
    assert [f"{place}: {text[:60]}" for place, _, text in DOCUMENTED if CLAUSE.match(text)] == []


def test_no_docstring_is_in_a_dialect() -> None:
    assert [f"{place}: {text[:60]}" for place, _, text in DOCUMENTED if DIALECT.search(text)] == []
