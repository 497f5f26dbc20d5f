# SPDX-License-Identifier: MIT
"""Does a test use the module that it is the twin of?"""

import ast
import functools
import re
from dataclasses import astuple, dataclass
from pathlib import Path

from import_graph import Graph, Import


@dataclass(frozen=True)
class Vocabulary:
    """Words of a test's code: modules it imports, identifiers, and words of its strings; not of its docstrings."""

    modules: frozenset[str]
    names: frozenset[str]
    strings: frozenset[str]

    @classmethod
    def of(cls, tree: ast.Module) -> "Vocabulary":
        modules, names, strings = set[str](), set[str](), set[str]()
        for node in _without_docstrings(tree):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names |= {alias.name for alias in node.names}
                modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings |= {node.value, *re.findall(r"\w+", node.value), *re.findall(r"\w+(?:\.\w+)+", node.value)}
        return cls(frozenset(modules), frozenset(names), frozenset(strings))


def _without_docstrings(tree: ast.AST) -> list[ast.AST]:
    return [
        inner
        for node in ast.walk(tree)
        for inner in ast.iter_child_nodes(node)
        if not (isinstance(node, ast.Expr) and isinstance(inner, ast.Constant))
    ]


@functools.cache
def vocabulary(path: Path) -> Vocabulary:
    """Of a test's file, and of the helpers that it imports from its folder or from tests/support."""
    own = Vocabulary.of(ast.parse(path.read_text(encoding="utf-8"), str(path)))
    helpers = [folder / f"{name}.py" for folder in (path.parent, Path(__file__).parent) for name in own.modules]
    parts = [own, *(vocabulary(helper) for helper in helpers if helper != path and helper.is_file())]
    return Vocabulary(*(frozenset().union(*words) for words in zip(*map(astuple, parts), strict=True)))


def uses(test: Vocabulary, graph: Graph, module: str, room: str) -> bool:
    """True if the test, which lies in the folder of `room`, imports `module`, or names something that it defines.

    It may also name the module without its path, as commands and jobs are named, or something of the two rooms that
    needs the module: a public name, a command, a package that is run.
    """
    imported = test.modules | test.strings
    if any(f"{name}.".startswith(f"{module}.") for name in imported):
        return True
    rooms = (graph.room(module), room)
    if not any(f"{name}.".startswith(f"{graph.package}.") for name in imported):
        return False
    words = test.names | test.strings
    entrances = {home for name, home in _public(graph, rooms) if name in words}
    entrances |= {name for name in graph.files if graph.room(name) in rooms and _stem(name) in test.strings}
    entrances |= {f"{name}.__main__" for name in test.strings if f"{name}.__main__" in graph.files}
    named = {_stem(module), *defined(graph, module)}
    return bool(words & named) or any(module in _needs(graph, rooms, home) for home in entrances)


def _stem(module: str) -> str:
    return module.rpartition(".")[2].strip("_")


@functools.cache
def defined(graph: Graph, module: str) -> frozenset[str]:
    """Names that a module makes: functions, classes, variables."""
    names = set[str]()
    for node in ast.parse(graph.files[module].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return frozenset(name for name in names if not name.startswith("__"))


@functools.cache
def _public(graph: Graph, rooms: tuple[str, ...]) -> list[tuple[str, str]]:
    """Names that the packages of the rooms, and the root, take from modules of the rooms; and those modules."""
    packages = [name for name in graph.files if graph.is_package(name) and graph.room(name) in ("", *rooms)]
    steps = [step for package in packages for step in graph.imports(package) if step.name]
    homes = [(step.name, _origin(graph, step)) for step in steps]
    return [(name, home) for name, home in homes if graph.room(home) in rooms]


def _origin(graph: Graph, step: Import) -> str:
    """The module that an imported name comes from, by way of packages that pass it on."""
    for inner in graph.imports(step.target) if graph.is_package(step.target) else ():
        if inner.name == step.name and inner.target != step.target:
            return _origin(graph, inner)
    return step.target


@functools.cache
def _needs(graph: Graph, rooms: tuple[str, ...], module: str) -> frozenset[str]:
    """The modules of the rooms that a module imports, those that they import, and those that register themselves."""
    found, queue = {module}, [module]
    for at in queue:
        steps = [step for step in graph.imports(graph.home(at)) if step.when == "module" and not step.name]
        for target in (_origin(graph, step) for step in (*graph.imports(at), *steps)):
            if target in graph.files and target not in found and graph.room(target) in rooms:
                found.add(target)
                queue.append(target)
    return frozenset(found)
