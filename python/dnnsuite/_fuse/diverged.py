# SPDX-License-Identifier: MIT
"""Attributes in which models that were alike have come to differ, such as a running mean of the losses."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Sequence
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
        if not is_fused(module) or not _sets(bare_class(module)):
            continue
        own = module.__dict__["_fused_parts"]
        if own is None or not own.own:
            known = names_of_own(module)
            held = [
                {name: value for name, value in plain_attributes(one).items() if name not in known}
                for part in parts
                for one in _models_at(part, path)
            ]
            found = _set_apart(module, held) or found
    return found


def _set_apart(module: Any, held: Sequence[dict[str, Any]]) -> bool:
    first = held[0]
    names = sorted(n for n in first if any(_other(own.get(n, _MISSING), first[n]) for own in held[1:]))
    if not names:
        return False
    trees = [Fusion([model_of(module, index)]).tree() for index in range(len(held))]
    for tree, own in zip(trees, held, strict=True):
        tree.__dict__.update({name: own[name] for name in names if name in own})
    module._fused_parts = ModelParts(module, trees)
    module._fused_withhold({*names, *names_of_own(module)})
    module._fused_own = None
    report = module._fused_report
    report.reason = report.reason or f"its code makes models differ in {names[0]}"
    return True


def _other(a: Any, b: Any) -> bool:
    return a is not b and (type(a) is not type(b) or repr(a) != repr(b))


def _models_at(part: Any, path: str) -> list[Any]:
    """List the modules at `path` of the models of a shard, or the one that all of them have there."""
    choice = part.__dict__.get("_fused_choice")
    if choice is not None and choice.looping:
        return [model.get_submodule(path) for model in choice.models]
    root, names = part._root, path.split(".") if path else []
    for length in range(len(names) + 1):
        outer = root.get_submodule(".".join(names[:length]))
        parts = outer.__dict__.get("_fused_parts")
        if parts is not None and outer._fused_report.reason:
            models = parts.trees if parts.plain is None else parts.plain.models
            if models:
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
