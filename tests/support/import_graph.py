# SPDX-License-Identifier: MIT
"""Imports between the modules of a package, read from its source. Nothing is executed."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

When = Literal["module", "function", "types", "table"]


@dataclass(frozen=True)
class Import:
    """One import. `target` is a module; `name` is what is taken from it, or "" for the module itself.

    `when` it happens: as the `module` is imported, in a `function`, for `types` only (under `TYPE_CHECKING`), or by a
    name that is looked up in a `table` of the importing module, as lazy packages and registries do.
    """

    source: str
    target: str
    name: str
    line: int
    when: When

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}{'.' + self.name if self.name else ''}"


class Graph:
    """The modules of the package in `folder`, by dotted name, and what each imports."""

    def __init__(self, folder: Path) -> None:
        self.package = folder.name
        self.files = {_dotted(path, folder): path for kind in ("pyi", "py") for path in folder.rglob(f"*.{kind}")}
        self._imports: dict[str, list[Import]] = {}

    def room(self, module: str) -> str:
        """The module or package directly below the root that `module` is in; "" for the root itself."""
        return (*module.split("."), "")[1] if self.is_inside(module) else ""

    def is_inside(self, module: str) -> bool:
        return module == self.package or module.startswith(f"{self.package}.")

    def is_package(self, module: str) -> bool:
        return module in self.files and self.files[module].name == "__init__.py"

    def home(self, module: str) -> str:
        """The package that `module` is in: itself, where it is one."""
        return module if self.is_package(module) or "." not in module else module.rpartition(".")[0]

    def imports(self, module: str) -> list[Import]:
        """All imports of `module`, those of modules outside the package included."""
        if module not in self._imports:
            path = self.files[module]
            reader = _Reader(self, module)
            if path.suffix == ".py":
                reader.read(ast.parse(path.read_text(encoding="utf-8"), str(path)))
            self._imports[module] = reader.found
        return self._imports[module]

    def all_imports(self) -> Iterator[Import]:
        for module in sorted(self.files):
            yield from self.imports(module)

    def circles(self) -> list[list[Import]]:
        """A shortest circle for each set of modules that import each other, in functions or not.

        Imports for types alone do not count, nor do the tables of registries, which know what uses them.
        """
        edges = {
            module: [step for step in self._edges(module, "module", "function") if step.target in self.files]
            for module in self.files
        }
        found, done = [], set[str]()
        for module in sorted(edges):
            if module not in done and (circle := _way(module, edges.__getitem__, {module}.__contains__)):
                found.append(circle)
                done |= {step.source for step in circle}
        return found

    def _edges(self, module: str, *moments: When) -> Iterator[Import]:
        """Imports at these moments, with those that a lazy package makes as its names are taken from it."""
        for step in self.imports(module):
            if step.when in moments:
                yield step
                yield from self._of_lazy(step)

    def _of_lazy(self, step: Import) -> Iterator[Import]:
        if step.name and self.is_package(step.target) and step.target != step.source:
            behind = self.imports(step.target)
            if any(other.when == "table" for other in behind):
                for other in behind:
                    if other.when == "types" and other.name == step.name:
                        yield replace(step, target=other.target)

    def way_to(self, outside: frozenset[str], module: str) -> list[Import]:
        """A shortest chain of imports by which importing `module` imports one of the packages `outside`, or []."""

        def edges(at: str) -> Iterator[Import]:
            for step in self._edges(at, "module") if at in self.files else ():
                yield step
                for package in _parents(step.target):  # is imported on the way
                    if package in self.files and not module.startswith(f"{package}."):
                        yield replace(step, target=package, name="")

        return _way(module, edges, lambda at: at.split(".")[0] in outside)


def private_imports(graph: Graph) -> list[Import]:
    """Imports of a private module, or of a private name, from outside of the package that it is in."""
    return [step for step in graph.all_imports() if graph.is_inside(step.target) and _is_trespass(graph, step)]


def _is_trespass(graph: Graph, step: Import) -> bool:
    importer = graph.home(step.source)
    parts = step.target.split(".")
    owners = [".".join(parts[:i]) for i, part in enumerate(parts) if _is_private(part)]
    if _is_private(step.name):
        owners.append(graph.home(step.target))
    return any(importer != owner and not importer.startswith(f"{owner}.") for owner in owners)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


class _Reader:
    """Collects the imports of one module."""

    def __init__(self, graph: Graph, module: str) -> None:
        self._graph, self._module = graph, module
        self._bound: dict[str, str] = {}  # local name → module
        self._looks_up, self._looks_up_children = False, False
        self.found: list[Import] = []

    def read(self, tree: ast.Module) -> None:
        self._bind(tree)
        self._visit(tree, "module")
        if self._looks_up:
            self._read_tables(tree)

    def _bind(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._bound[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    module = f"{self._base(node)}.{alias.name}"
                    if module in self._graph.files:
                        self._bound[alias.asname or alias.name] = module

    def _base(self, node: ast.ImportFrom) -> str:
        return self._absolute("." * node.level + (node.module or ""))

    def _absolute(self, name: str) -> str:
        """The dotted name of what `name`, with a dot for each level, is to this module."""
        tail = name.lstrip(".")
        package = self._graph.home(self._module).split(".")
        package = package[: len(package) - (len(name) - len(tail)) + 1] if tail != name else []
        return ".".join((*package, *filter(None, [tail])))

    def _visit(self, node: ast.AST, when: When) -> None:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                self._add_name(self._base(node), alias.name, node.lineno, when)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                self._add(alias.name, "", node.lineno, when)
        elif isinstance(node, ast.Call) and _is_import_by_name(node):
            self._add_by_name(node, when)
        elif isinstance(node, ast.Attribute):
            self._add_attribute(node, when)
        for field, value in ast.iter_fields(node):
            inner = self._moment(node, field, when)
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self._visit(child, inner)

    @staticmethod
    def _moment(node: ast.AST, field: str, when: When) -> When:
        if when == "types" or field != "body":
            return when
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            return "types"
        return "function" if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) else when

    def _add(self, target: str, name: str, line: int, when: When) -> None:
        step = Import(self._module, target, name, line, when)
        if step not in self.found:
            self.found.append(step)

    def _add_name(self, base: str, name: str, line: int, when: When) -> None:
        """`from base import name`, where `name` may be a module."""
        is_module = f"{base}.{name}" in self._graph.files
        self._add(f"{base}.{name}" if is_module else base, "" if is_module else name, line, when)

    def _add_by_name(self, node: ast.Call, when: When) -> None:
        name = node.args[0] if node.args else ast.Constant("")
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            self._add(self._absolute(name.value), "", node.lineno, when)
        else:
            self._looks_up = True
            self._looks_up_children |= isinstance(name, ast.JoinedStr)

    def _add_attribute(self, node: ast.Attribute, when: When) -> None:
        """`module.name`, a submodule, a private name, or a name of the root."""
        names = []
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            names.insert(0, root.attr)
            root = root.value
        module = self._bound.get(root.id, "") if isinstance(root, ast.Name) else ""
        if not self._graph.is_inside(module):
            return
        for name in names:
            if f"{module}.{name}" not in self._graph.files:
                if _is_private(name) or module == self._graph.package:
                    self._add(module, name, node.lineno, when)
                return
            module = f"{module}.{name}"
            self._add(module, "", node.lineno, when)

    def _read_tables(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or not node.value.strip("."):
                continue
            names = [node.value] if node.value.startswith((".", f"{self._graph.package}.")) else []
            names += [f".{node.value}"] if self._looks_up_children else []
            for target in map(self._absolute, names):
                if target in self._graph.files and target != self._module:
                    self._add(target, "", node.lineno, "table")


def _is_import_by_name(node: ast.Call) -> bool:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return called in ("import_module", "__import__")


def _dotted(path: Path, folder: Path) -> str:
    parts = (folder.name, *path.relative_to(folder).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _way(
    start: str, edges: Callable[[str], Iterator[Import] | list[Import]], is_end: Callable[[str], bool]
) -> list[Import]:
    """A shortest chain of imports from `start` to a module that `is_end`; [] without one."""
    came: dict[str, list[Import]] = {start: []}
    queue = [start]
    for at in queue:
        for step in edges(at):
            if is_end(step.target):
                return [*came[at], step]
            if step.target not in came:
                came[step.target] = [*came[at], step]
                queue.append(step.target)
    return []
