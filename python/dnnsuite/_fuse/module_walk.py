# SPDX-License-Identifier: MIT
"""Walk over the modules of a tree: what `named_modules` and the like yield, in a third of the time."""

from __future__ import annotations

import torch

__all__ = ["modules_below", "tensors_below", "tensors_of_each"]

_TORCHS_WALK = torch.nn.Module.named_modules


def modules_below(root: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """List `root` and all modules in it, each once and with its name, in the order of `named_modules`.

    A class with a `named_modules` of its own is asked for its part.
    """
    found: list[tuple[str, torch.nn.Module]] = [("", root)]
    _add_children(root, "", {root}, found)
    return found


def tensors_below(root: torch.nn.Module, registry: str) -> list[tuple[str, torch.Tensor]]:
    """List the tensors in `registry`, `_parameters` or `_buffers`, of `root` and all modules in it, each once and with
    its name, in the order of `named_parameters`."""
    found: list[tuple[str, torch.Tensor]] = []
    seen: set[int] = set()
    for path, module in modules_below(root):
        for name, tensor in getattr(module, registry).items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found.append((f"{path}.{name}" if path else name, tensor))
    return found


def tensors_of_each(root: torch.nn.Module) -> list[tuple[str, torch.Tensor, str]]:
    """List every tensor of a model, or of an array that has a dimension for the models: name, tensor, and `parameter`
    or `buffer`; one with several names under each."""
    found: list[tuple[str, torch.Tensor, str]] = []
    for path, module in modules_below(root):
        shared = getattr(module, "shared_buffers", ())
        for kind, held in (("parameter", module._parameters), ("buffer", module._buffers)):
            for name, value in held.items():
                if value is not None and name not in shared:
                    found.append((f"{path}.{name}" if path else name, value, kind))
    return found


def _add_children(
    module: torch.nn.Module, prefix: str, seen: set[torch.nn.Module], found: list[tuple[str, torch.nn.Module]]
) -> None:
    for name, child in module._modules.items():
        if child is None or child in seen:
            continue
        if type(child).named_modules is not _TORCHS_WALK:
            found += child.named_modules(seen, prefix + name)
            continue
        seen.add(child)
        found.append((prefix + name, child))
        if child._modules:
            _add_children(child, f"{prefix}{name}.", seen, found)
