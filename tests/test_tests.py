# SPDX-License-Identifier: MIT
"""Rules for the tests themselves."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import parsed

TESTS = Path(__file__).parent
_OF_OTHERS = ("_C", "_torch", "_obj", "_conv_forward")  # _conv_forward: of torch, whose users replace it
PATCHES = {"setattr", "delattr", "object", "patch"}  # of pytest.MonkeyPatch, and of unittest.mock


def private_patches(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and target of each change to a private name of ours: what a test changes is a promise to keep it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PATCHES:
            is_whole = isinstance(node.args[0], ast.Constant) if node.args else True  # "module.name" in one
            path = ".".join(map(_path, node.args[: 1 if is_whole else 2]))
            if _is_private(path):
                yield node.lineno, path
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [getattr(node, "target", None)]
        for target in (part for whole in targets if whole for part in getattr(whole, "elts", [whole])):
            if isinstance(target, ast.Attribute) and _is_private(path := _path(target)):
                yield node.lineno, path


def _path(node: ast.AST) -> str:
    """The dotted names of an expression, or of a string."""
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str) else ""
    if isinstance(node, ast.Attribute):
        return f"{_path(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_private(path: str) -> bool:
    """True if a part after the first is a private name of ours: not of the test, of torch or of ctypes."""
    first, *parts = path.split(".")
    if first in ("self", "cls", "torch"):
        return False
    return any(part.startswith("_") and not part.endswith("__") and part not in _OF_OTHERS for part in parts)


def test_no_test_changes_a_private_name():
    found = [
        f"{path.relative_to(TESTS)}:{line} changes {target}"
        for path, tree in parsed.trees(sorted(TESTS.rglob("*.py"))).items()
        for line, target in private_patches(tree)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("monkeypatch.setattr(module, '_hidden', 1)", True),
        ("monkeypatch.setattr(module._hidden, 'name', 1)", True),
        ("monkeypatch.setattr('house._hidden.name', 1)", True),
        ("monkeypatch.setattr('house.room._hidden', 1)", True),
        ("monkeypatch.delattr(module, '_hidden')", True),
        ("mock.patch('house.room._hidden')", True),
        ("with mock.patch.object(thing, '_hidden'): pass", True),
        ("thing._hidden = 1", True),
        ("thing._hidden += 1", True),
        ("thing._hidden: int = 1", True),
        ("thing._a, other = 1, 2", True),
        ("del thing._hidden", True),
        ("monkeypatch.setattr(module, 'name', '_value')", False),
        ("monkeypatch.setattr('house.room.name', 1)", False),
        ("monkeypatch.setattr(Thing, '__len__', 1)", False),
        ("monkeypatch.setattr(module._C, 'name', 1)", False),
        ("monkeypatch.delattr(torch._C, '_name')", False),
        ("monkeypatch.setenv('_NAME', '1')", False),
        ("self._hidden = 1", False),
        ("thing.name = other._hidden", False),
        ("_hidden = 1", False),
    ],
)
def test_changes_are_found(statement, found):
    assert bool(list(private_patches(ast.parse(statement)))) is found
