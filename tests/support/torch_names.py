# SPDX-License-Identifier: MIT
"""Private names of torch: `load_without` hides some from `dnnsuite._torch` alone, `private_names` finds them in code.

Run as a script it trains an array once for each use of a private name, with the names of that use hidden, and prints
what came out of it as one line of JSON for each.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch


def _owner(dotted: str) -> tuple[Any, str]:
    *path, last = dotted.split(".")
    found: Any = torch
    for number, part in enumerate(path[1:], 2):
        found = getattr(found, part, None) or sys.modules[".".join(path[:number])]  # torch.optim hides a module
    return found, last


def load_without(hidden: Iterable[str], name: str = "a_copy_of_dnnsuite_torch") -> ModuleType:
    """`dnnsuite._torch` as it is under a torch without the names `hidden`. torch itself keeps and uses them.

    The package finds torch's names by `getattr`: its modules get one that does not find these.
    """
    hidden = set(hidden)
    dynamo = sys.modules.get("torch._dynamo")
    before = {each: sys.modules.pop(each) for each in list(sys.modules) if f"{each}.".startswith(f"{name}.")}
    if "torch._dynamo" in hidden:
        sys.modules["torch._dynamo"] = None  # type: ignore[assignment]
    finder = _Finder(name, hidden)
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module(name)
    finally:
        sys.meta_path.remove(finder)
        if "torch._dynamo" in hidden:
            del sys.modules["torch._dynamo"]
            if dynamo is not None:
                sys.modules["torch._dynamo"] = dynamo
        if name != "dnnsuite._torch":
            for each in [each for each in sys.modules if f"{each}.".startswith(f"{name}.")]:
                del sys.modules[each]
            sys.modules.update(before)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `dnnsuite._torch` and its modules under the name of a copy."""

    def __init__(self, name: str, hidden: set[str]) -> None:
        found = importlib.util.find_spec("dnnsuite._torch")
        assert found is not None
        assert found.origin is not None
        self._name, self._folder = name, Path(found.origin).parent
        self._builtins = _builtins_without(hidden)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname == self._name:
            return self._spec(fullname, self._folder / "__init__.py", [str(self._folder)])
        if fullname.rpartition(".")[0] == self._name:
            return self._spec(fullname, self._folder / f"{fullname.rpartition('.')[2]}.py", None)
        return None

    def _spec(self, fullname: str, path: Path, places: list[str] | None) -> Any:
        return importlib.util.spec_from_file_location(
            fullname, path, loader=_Loader(fullname, str(path), self._builtins), submodule_search_locations=places
        )


class _Loader(importlib.machinery.SourceFileLoader):
    """Gives a module functions in place of Python's own before it runs."""

    def __init__(self, fullname: str, path: str, builtins: dict[str, Any]) -> None:
        super().__init__(fullname, path)
        self._builtins = builtins

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self._builtins)
        super().exec_module(module)


def _builtins_without(hidden: set[str]) -> dict[str, Any]:
    """Python's `getattr` and `isinstance` for code that must not find the names `hidden`."""
    places = []
    for one in hidden - {"torch._dynamo"}:
        with contextlib.suppress(
            AttributeError, KeyError
        ):  # a torch that has lost more of it than the name hides it already
            places.append(_owner(one))

    def own_getattr(value: Any, attribute: str, *default: Any) -> Any:
        for owner, last in places:
            if attribute == last and (value is owner or (isinstance(owner, type) and isinstance(value, owner))):
                if default:
                    return default[0]
                raise AttributeError(f"no {attribute}, as the test wants it")
        return getattr(value, attribute, *default)

    def own_isinstance(value: Any, kind: Any) -> bool:
        marked = "torch.nn.Parameter._is_param" in hidden and kind is torch.nn.Parameter
        return isinstance(value, kind) and not marked

    return {"getattr": own_getattr, "isinstance": own_isinstance}


# -- private names in source code --------------------------------------------------------------------------------------

#: Private names of Python's own.
PYTHONS = {"_replace", "_fields", "_asdict", "_make", "_getframe", "_exit", "_repr_html_", "_MEIPASS"}


def _private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes, in no order: several times as quick as `ast.walk`, which asks each for its fields by name."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for value in vars(node).values():
            if isinstance(value, list):
                left += [inner for inner in value if isinstance(inner, ast.AST)]
            elif isinstance(value, ast.AST):
                left.append(value)


def _of_kinds(tree: ast.AST, *kinds: type[ast.AST]) -> list[Any]:
    """The nodes of some kinds. A file is walked once, and looked through four times, each time at few of its nodes."""
    if (found := _of_file.get(tree)) is None:
        found = _of_file[tree] = {}
        for node in _nodes(tree):
            if node is not tree:  # a node has no way back to its tree, which goes with the last that holds it
                found.setdefault(type(node), []).append(node)
    return [node for kind in kinds for node in found.get(kind, ())]


_of_file: weakref.WeakKeyDictionary[ast.AST, dict[type[ast.AST], list[ast.AST]]] = weakref.WeakKeyDictionary()


def own_names(trees: Iterable[ast.AST]) -> set[str]:
    """Private names that the given code defines itself."""
    found: set[str] = set()
    kinds = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Name, ast.arg, ast.Attribute, ast.Subscript
    for tree in trees:
        for node in _of_kinds(tree, *kinds):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                found |= {node.attr} if own else set()
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                found |= {_first_text(node.slice)} if getattr(node.value, "attr", "") == "__dict__" else set()
    return {name for name in found if _private(name)}


def private_names(tree: ast.AST, own: set[str], attributes: set[str], known: set[str]) -> Iterator[str]:
    """`line: name` for each private name of torch in a file.

    Args:
        own: private names that the package defines.
        attributes: private attributes of torch's objects that may be used anywhere.
        known: private names of torch that may stand in no string either.
    """
    bound = _bound_to_torch(tree)
    documentation = _docstrings(tree)
    for node in _of_kinds(tree, ast.ImportFrom, ast.Import, ast.Attribute, ast.Call, ast.Constant):
        line = node.lineno
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                dotted = f"{node.module}.{alias.name}"
                if any(map(_private, dotted.split("."))) or alias.name == "*":
                    yield f"{line}: {dotted}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("torch.") and any(map(_private, alias.name.split("."))):
                    yield f"{line}: {alias.name}"
        elif isinstance(node, ast.Attribute):
            dotted = _dotted(node, bound)
            if dotted and (_private(node.attr) or dotted in known or node.attr == "__dict__"):
                yield f"{line}: {dotted}"
            elif not dotted and _private(node.attr) and node.attr not in own | attributes | PYTHONS:
                yield f"{line}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("vars", "dir") and node.args and _dotted(node.args[0], bound):
                yield f"{line}: {ast.unparse(node)}"
            if node.func.id in ("getattr", "hasattr", "setattr", "delattr") and len(node.args) > 1:
                dotted, name = _dotted(node.args[0], bound), _first_text(node.args[1])
                foreign = name not in own | attributes | PYTHONS
                if _private(name) and (dotted or (foreign and isinstance(node.args[1], ast.Constant))):
                    yield f"{line}: {ast.unparse(node)}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation:
            text = node.value
            named = re.search(r"\btorch(\.\w+)*\._(?!_)\w", text) or re.search(r"(^|\W)_C\._\w", text)
            if named or text in known:
                yield f"{line}: {text!r}"


def _first_text(node: ast.AST) -> str:
    """The text that an expression begins with, as far as it is written there."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr) and node.values:
        return _first_text(node.values[0])
    if isinstance(node, ast.BinOp):
        return _first_text(node.left)
    return ""


def _bound_to_torch(tree: ast.AST) -> dict[str, str]:
    """Names in a file that stand for something of torch's: by import, or given to them afterwards."""
    bound: dict[str, str] = {}
    given = []
    for node in _of_kinds(tree, ast.Assign, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            given.append((node.targets[0].id, node.value))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "torch":
                    bound[alias.asname or "torch"] = alias.name if alias.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for _ in range(3):  # a name of a name of a name
        for name, value in given:
            if dotted := _dotted(value, bound):
                bound.setdefault(name, dotted)
    return bound


_BY_TEXT = {"sys.modules", "sys.modules.get", "importlib.import_module", "__import__", "import_module"}


def _dotted(node: ast.AST, bound: dict[str, str]) -> str:
    """`torch.a.b` for an expression that is a name of torch's; `sys.modules["torch"]` and
    `importlib.import_module("torch")` are one too. Empty for others."""
    if isinstance(node, ast.Name):
        return bound.get(node.id, "")
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value, bound)
        return inner and f"{inner}.{node.attr}"
    called = node.func if isinstance(node, ast.Call) else node.value if isinstance(node, ast.Subscript) else None
    if isinstance(called, ast.Name | ast.Attribute) and ast.unparse(called) in _BY_TEXT:
        texts = [one.value for one in _nodes(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        return next((text for text in texts if text.split(".")[0] == "torch"), "")
    return ""


def _docstrings(tree: ast.AST) -> set[ast.AST]:
    """Strings that are statements: documentation."""
    return {node.value for node in _of_kinds(tree, ast.Expr) if isinstance(node.value, ast.Constant)}


# -- a training with names hidden --------------------------------------------------------------------------------------

STEPS, B = 6, 3
_AT_ONCE = 6  # uses whose names are lost together


class _Model(torch.nn.Module):
    """Model whose training needs private names of torch: batch norm, a block without gradients, an unknown function."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 1, bias=False), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()
        )
        self.scale = torch.nn.Parameter(torch.rand(16))
        self.head = torch.nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> dict[str, tuple[torch.Tensor, ...]]:
        h = self.body(x)
        with torch.no_grad():
            size = h.abs().mean()
        h = torch.nn.functional.layer_norm(h / (size + 1), [16]) * self.scale
        return {"out": (self.head(torch.special.expit(h)), h)}


def _train(hidden: Iterable[str]) -> dict[str, Any]:
    import dnnsuite

    names: Any = load_without(hidden, "dnnsuite._torch")
    dnnsuite._torch = names  # type: ignore[attr-defined]
    from dnnsuite import StepRunner, optim
    from dnnsuite.nn import functional

    models = []
    for index in range(B):
        torch.manual_seed(index)
        models.append(_Model())
    array = dnnsuite.fuse(models)
    optimizer = optim.Adam(array.parameters(), lr=[0.01, 0.02, 0.03], B=B)
    torch.manual_seed(9)
    x, y = torch.rand(B, 8, 2, 2, 2), torch.randint(0, 3, (B, 8))
    losses = []

    def loss(array: Any, x: Any, y: Any) -> Any:
        return functional.cross_entropy(array(x)["out"][0], y)

    with StepRunner(array, optimizer, loss, threads=1, width=B) as runner:
        for _ in range(STEPS):
            losses.append(runner.step(x, y).losses().tolist())
        mode = runner.mode
    state = torch.cat([p.detach().double().flatten() for p in array.parameters()])
    fresh = dnnsuite.fuse(models)
    fresh(x)
    return {
        "losses": losses,
        "state": state.tolist(),
        "mode": mode,
        "per model": [cover.reason for cover in fresh.coverage() if cover.how == "per model"],
        "lost": dict(names.lost()),
        "hooked": _hooked(dnnsuite, loss_of=lambda array, x: array(x).sum((1, 2))),
        "backward": _refused_in_backward(dnnsuite),
    }


def _hooked(dnnsuite: Any, loss_of: Any) -> int:
    """The calls that a stranger's hook of every module gets from a layer of an array in `STEPS` steps."""
    array = dnnsuite.fuse([torch.nn.Sequential(torch.nn.Linear(3, 3)) for _ in range(B)])
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1, B=B)
    calls = []
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, *_: calls.append(1) if isinstance(module, dnnsuite.nn.Linear) else None
    )
    try:
        with dnnsuite.StepRunner(array, optimizer, loss_of, threads=1, width=B) as runner:
            for _ in range(STEPS):
                runner.step(torch.ones(B, 2, 3)).losses()
    finally:
        hook.remove()
    return len(calls)


def _refused_in_backward(dnnsuite: Any) -> str:
    """What an array says to torch's own checkpoint, which runs its forward again in a backward pass."""
    array = dnnsuite.fuse([torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)) for _ in range(2)])
    x = torch.rand(2, 4, 3, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(array, x, use_reentrant=False)
    try:
        y.sum().backward()
    except dnnsuite.errors.InvalidArgument as error:
        return str(error)
    return ""


def main() -> None:
    names = load_without([]).NAMES
    uses = {"": [], **{key: list(name.names) for key, name in names.items() if name.needed_by}}
    # What nothing needs has its substitute: six that have nothing to do with each other, far apart in the list, are
    # lost at once.
    others = [key for key in names if not names[key].needed_by]
    count = (len(others) + _AT_ONCE - 1) // _AT_ONCE
    for lost in (others[first::count] for first in range(count)):
        uses[" and ".join(lost)] = [name for key in lost for name in names[key].names]
    torch.set_num_threads(1)
    importlib.import_module("torch._dynamo")  # slow, and torch's checkpoint wants it: once, before the forks
    gc.freeze()  # what was imported so far is looked through by no child's collector

    for use, hidden in uses.items():
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                print(json.dumps({"use": use, **_train(hidden)}), flush=True)
                os._exit(0)
            except BaseException as error:
                print(json.dumps({"use": use, "error": repr(error)}), flush=True)
                raise
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
