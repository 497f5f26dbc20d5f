# SPDX-License-Identifier: MIT
"""Parts of models that the user wants to run model by model."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

import torch

from ..errors import InvalidArgument

#: A name, names, or a function of a module's name and the module.
Unfused = str | Iterable[str] | Callable[[str, torch.nn.Module], bool]
ASKED = "requested"
_SHOWN = 3
_NO_FORWARD = (
    torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList, torch.nn.ParameterDict,
)  # fmt: skip


def chosen_parts(model: torch.nn.Module, unfused: Unfused) -> frozenset[int]:
    """Return the identities of the modules of `model` that `unfused` names; of nested ones the outermost.

    A list of modules that is never called itself (`ModuleList`, `ModuleDict`) stands for the modules in it.

    Raises:
        InvalidArgument: for a name that matches no module, with the nearest names there are.
    """
    parts = dict(model.named_modules(remove_duplicate=False))
    if callable(unfused):
        names = [name for name, part in parts.items() if unfused(name, part)]
    else:
        names = _matching(parts, [unfused] if isinstance(unfused, str) else unfused)
    outermost = [name for name in names if not any(_is_above(other, name) for other in names)]
    return frozenset(id(part) for name in outermost for part in _called(parts[name]))


def _matching(parts: dict[str, torch.nn.Module], patterns: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise InvalidArgument(
                f"unfused takes names of modules or a function of name and module, got a {type(pattern).__name__}"
            )
        names = [name for name in parts if fnmatchcase(name, pattern)]
        if not any(True for name in names for _ in _called(parts[name])):
            near = difflib.get_close_matches(pattern, [name for name in parts if name], _SHOWN, 0.0)
            there = ", ".join(near) if near else "none, for the model has no parts"
            raise InvalidArgument(f"unfused={pattern!r} matches no module of the models; the nearest are {there}")
        found |= dict.fromkeys(names)
    return list(found)


def _is_above(name: str, other: str) -> bool:
    return name != other and (name == "" or other.startswith(f"{name}."))


def _called(part: torch.nn.Module) -> Iterable[torch.nn.Module]:
    """Yield the module, or those in it if it only holds them."""
    if not isinstance(part, _NO_FORWARD) or type(part).forward is not torch.nn.Module.forward:
        yield part
        return
    for child in part.children():
        yield from _called(child)
