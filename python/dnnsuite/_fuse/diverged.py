# SPDX-License-Identifier: MIT
"""Attributes in which models that were alike have come to differ, such as a running mean of the losses."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Sequence, Set
from typing import Any

import torch

from .build import Fusion
from .code.fused_attributes import bare_class, is_fused, plain_attributes
from .code.one_by_one import ModelParts
from .code.own_values import names_of_own
from .single_model import model_of

_MISSING = object()


def models_differ(array: torch.nn.Module, parts: Sequence[torch.nn.Module]) -> bool:
    """Give models of `array` their own of the attributes in which those of its `parts`, shards in order, differ now.

    Returns True if there are such: parts of the array have to be made anew.
    """
    root = array.__dict__.get("_root")
    found = False
    for path, module in root.named_modules() if root is not None else ():
        if not is_fused(module):
            continue
        own = module.__dict__["_fused_parts"]
        read = module._fused_own is not None and bool(module._fused_report.reason)
        if read or (_sets(bare_class(module)) and (own is None or not own.own)):
            held = [plain_attributes(one) for part in parts for one in _models_at(part, path)]
            known = names_of_own(module)
            names = {name for name in held[0].keys() - known if _differs(name, held)}
            if names or read:  # the latter: code of a part has read what models have of their own
                _set_apart(module, held, names | known)
                found = True
    return found


def _differs(name: str, held: Sequence[dict[str, Any]]) -> bool:
    return any(_other(own.get(name, _MISSING), held[0][name]) for own in held[1:])


def _set_apart(module: Any, held: Sequence[dict[str, Any]], names: Set[str]) -> None:
    """Run the models one by one from now on, each with its own of the attributes `names`, as far as they are `held`."""
    trees = [Fusion([model_of(module, index)]).tree() for index in range(len(held))]
    for tree, own in zip(trees, held, strict=True):
        tree.__dict__.update({name: own[name] for name in names if name in own})
    module._fused_parts, module._fused_own = ModelParts(module, trees), None
    module._fused_withhold(names)
    report = module._fused_report
    report.reason = report.reason or f"its code makes models differ in {min(names)}"


def _other(a: Any, b: Any) -> bool:
    return a is not b and (type(a) is not type(b) or repr(a) != repr(b))


def _models_at(part: Any, path: str) -> list[Any]:
    """List the modules at `path` of the models of a shard, or the one that all of them have there."""
    choice = part.__dict__.get("_fused_choice")
    if choice is not None and choice.looping and choice.follows():  # a replay has set the array's alone
        return [model.get_submodule(path) for model in choice.models]
    root, names = part._root, path.split(".") if path else []
    for length in range(len(names) + 1):
        outer = root.get_submodule(".".join(names[:length]))
        parts = outer.__dict__.get("_fused_parts")
        if parts is not None and outer._fused_report.reason:
            models = parts.trees if parts.plain is None else parts.plain.models
            if models and (parts.plain is None or parts.plain.follow()):
                return [model.get_submodule(".".join(names[length:])) for model in models]
    return [root.get_submodule(path)]


def _sets_attributes(kind: Any) -> bool:
    """Return True if a class of the user's has a method beside its constructor that sets attributes."""
    return any(
        isinstance(function, types.FunctionType) and name != "__init__" and _stores(function.__code__)
        for base in kind.__mro__
        if not base.__module__.startswith(("torch.nn.modules", "builtins"))
        for name, function in vars(base).items()
    )


#: `_sets_attributes`, looked up once for each class.
_sets: Callable[[Any], bool] = functools.lru_cache(maxsize=1024)(_sets_attributes)


def _stores(code: types.CodeType) -> bool:
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return (
        "setattr" in code.co_names
        or any(step.opname == "STORE_ATTR" for step in dis.get_instructions(code))
        or any(map(_stores, inner))
    )
