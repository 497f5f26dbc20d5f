# SPDX-License-Identifier: MIT
"""Docstrings name things by a noun or a verb, and public ones say what a caller has to know."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dnnsuite
import parsed

PACKAGE = Path(dnnsuite.__file__).parent
Trees = dict[Path, ast.Module]


@pytest.fixture(scope="module")
def trees() -> Trees:
    """The sources. A million nodes: no other test shall have them parsed, nor looked through by its collector."""
    return parsed.trees((*PACKAGE.rglob("*.py"), PACKAGE / "_C.pyi"))


# A relative clause, a bare preposition or a pronoun is no name for a thing.
CLAUSE = re.compile(
    r"(What|Whether|How|Of|That|To be|Which|Who|Whose|Where|When|Why|As|Hear|Something|Everything|Those|These|There|It|"
    r"Nothing|Both|Not)\b"
)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.fixture(scope="module")
def documented(trees: Trees) -> list[tuple[str, str]]:
    """(place, docstring) of every module, class and function that has one."""
    return [
        (f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)} {getattr(node, 'name', 'module')}", text)
        for path, tree in trees.items()
        for node in _definitions(tree)
        if (text := ast.get_docstring(node))
    ]


def _definitions(node: Documented) -> Iterator[Documented]:
    """The node and all definitions in it, without a look at expressions, which are most of a tree."""
    yield node
    below: list[ast.stmt] = list(node.body)
    while below:
        each = below.pop()
        if isinstance(each, Documented):
            yield from _definitions(each)
        else:
            below += [inner for inner in ast.iter_child_nodes(each) if isinstance(inner, ast.stmt)]


def summary(text: str) -> str:
    """The first paragraph, in one line."""
    return " ".join(text.partition("\n\n")[0].split())


def test_no_docstring_begins_with_a_relative_clause(documented: list[tuple[str, str]]) -> None:
    assert [f"{place}: {text[:60]}" for place, text in documented if CLAUSE.match(text)] == []


def test_no_summary_begins_with_a_verb_in_the_third_person(documented: list[tuple[str, str]]) -> None:
    verbs = re.compile(r"(Add|Begin|Doe|Find|Give|Ha|Hold|I|Keep|Let|Make|Put|Return|Take|Tell|Write|Yield)s\b")
    assert [place for place, text in documented if verbs.match(text)] == []


def exported(trees: Trees) -> Iterator[tuple[str, ast.FunctionDef, str]]:
    """(place, function, docstring) of the functions that the package's own packages name in `__all__`."""
    for path, tree in trees.items():
        room = path.relative_to(PACKAGE).parts[0]
        front = trees.get(PACKAGE / room / "__init__.py")
        if front is None or room in ("cli", "ops", "nn"):  # help texts; signatures of torch
            continue
        for node in tree.body:
            overload = any(getattr(one, "id", "") == "overload" for one in getattr(node, "decorator_list", ()))
            if isinstance(node, ast.FunctionDef) and node.name in _names_of(front) and not overload:
                yield f"{path.relative_to(PACKAGE)}: {node.name}", node, ast.get_docstring(node) or ""


def _names_of(tree: ast.Module) -> set[str]:
    """Names in a module's `__all__`."""
    lists = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    ]
    return {each.value for found in lists for each in ast.walk(found) if isinstance(each, ast.Constant)}


def test_public_functions_have_a_summary(trees: Trees) -> None:
    found = list(exported(trees))
    assert len(found) > 100
    assert [place for place, _, text in found if not summary(text).endswith((".", ":"))] == []


def test_public_functions_explain_their_parameters(trees: Trees) -> None:
    unclear = []
    for place, node, text in exported(trees):
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        silent = [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)]
        if len(silent) > 2:
            unclear.append(f"{place} says nothing of {', '.join(silent)}")
    assert unclear == []


def parameters_of(node: Documented) -> set[str]:
    """Names of a function's parameters, or of a class's fields and of the parameters that make one."""
    if isinstance(node, ast.ClassDef):
        fields = {
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        makers = (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
        return fields.union(*map(parameters_of, makers))
    if isinstance(node, ast.Module):
        return set()
    return {each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)} - {"self"}


def joined_parameters(node: Documented) -> Iterator[str]:
    """Parameters whose description begins in the middle of a line, where no reader of docstrings finds it."""
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)*)", ast.get_docstring(node) or "", re.MULTILINE)
    names = "|".join(sorted(parameters_of(node)))
    if section and names:
        yield from re.findall(rf"(?<=[.;] )({names}): ", section[1])


def test_each_documented_parameter_begins_a_line(trees: Trees) -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {getattr(node, 'name', '')}: {name}"
        for path, tree in trees.items()
        for node in _definitions(tree)
        for name in joined_parameters(node)
    ]
    assert found == []


def test_a_parameter_in_the_middle_of_a_line_is_found() -> None:
    code = 'def f(a, b):\n    """Do.\n\n    Args:\n        a: one. b: two.\n    """'
    assert list(joined_parameters(ast.parse(code).body[0])) == ["b"]  # type: ignore[arg-type]


# A description is a noun or a command; "seed: of the weights" says of what, and not which thing.
PREPOSITION = re.compile(
    r"(of|by|for|in|with|as|to|where|that|which|over|from|on|what|how|whether|when|at|is|it|under)\b"
)


def elliptic_parameters(node: Documented) -> list[str]:
    """Parameters whose description begins with a preposition or a relative clause."""
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)*)", ast.get_docstring(node) or "", re.MULTILINE)
    entries = re.findall(r"^    (\*{0,2}[A-Za-z_][\w, ]*): (.*)", section[1] if section else "", re.MULTILINE)
    return [name for name, text in entries if PREPOSITION.match(text)]


def test_each_parameter_is_described_by_a_noun_or_a_verb(trees: Trees) -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {getattr(node, 'name', '')}: {name}"
        for path, tree in trees.items()
        for node in _definitions(tree)
        for name in elliptic_parameters(node)
    ]
    assert found == []


def test_an_elliptic_description_is_found() -> None:
    code = 'def f(a, b):\n    """Do.\n\n    Args:\n        a: of the run.\n        b: name of the run.\n    """'
    assert elliptic_parameters(ast.parse(code).body[0]) == ["a"]  # type: ignore[arg-type]
