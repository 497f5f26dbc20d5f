# SPDX-License-Identifier: MIT
"""Hooks: those of every module, and those of an optimizer's steps."""

from __future__ import annotations

import gc
import re
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .lookup import get, missing
from .names import NAMES

__all__ = [
    "GlobalHooks", "before_each_step", "containers_of_step_hooks", "global_hooks", "hooks_of_all", "mark_stepped",
    "methods_of_tensors", "step_hooks",
]  # fmt: skip


class GlobalHooks:
    """The containers of hooks that are registered for every module."""

    def __init__(self) -> None:
        modules: Any = torch.nn.modules.module
        self.containers = get("global hooks")
        # Not that of backward hooks: registering one decides which kind of them this process may have.
        registers = {
            "_global_forward_pre_hooks": "register_module_forward_pre_hook",
            "_global_forward_hooks": "register_module_forward_hook",
            "_global_backward_pre_hooks": "register_module_full_backward_pre_hook",
        }
        for name, hooks in zip(NAMES["global hooks"].names, self.containers, strict=False):
            register = registers.get(name.rpartition(".")[2])
            if not isinstance(hooks, dict) or (register and not _holds(hooks, getattr(modules, register, None))):
                missing.setdefault("global hooks", []).append(name)
        # Kinds of hooks that a later torch may have beside those.
        known = set(map(id, self.containers))
        others = [value for name, value in vars(modules).items() if re.fullmatch(r"_global_\w*hooks", name)]
        self.containers += [hooks for hooks in others if isinstance(hooks, dict) and id(hooks) not in known]

    def any(self) -> bool:
        """True if there is a hook. Without meaning where `no_capture` names the containers as lost."""
        return any(self.containers)


def _holds(hooks: Any, register: Any) -> bool:
    """True if `register`, torch's public way in, puts its hook into `hooks`."""
    if register is None:
        return False
    before = len(hooks)
    handle = register(lambda *_: None)
    try:
        return len(hooks) == before + 1
    finally:
        handle.remove()


global_hooks = GlobalHooks()


_global_step_hooks: list[dict[int, Any]] = get("optimizer hooks") or [{}, {}]


_own_step_hooks: list[Any] = []


def hooks_of_all() -> list[Any]:
    """Return the hooks of every module and of every optimizer's step, but for our own."""
    containers = [*global_hooks.containers, *_global_step_hooks]
    found = [hook for hooks in containers if isinstance(hooks, dict) for hook in hooks.values()]
    return [hook for hook in found if callable(hook) and hook not in _own_step_hooks]


def before_each_step(hook: Any) -> None:
    """Call `hook(optimizer, args, kwargs)` before each step of any optimizer; `step_hooks` leaves it out."""
    if hook not in _own_step_hooks:
        register_optimizer_step_pre_hook(hook)
        _own_step_hooks.append(hook)


def step_hooks(optimizer: torch.optim.Optimizer) -> tuple[list[Any], list[Any]]:
    """Return users' hooks that torch calls before a step of this optimizer, and those after it."""
    before, after, own_before, own_after = containers_of_step_hooks(optimizer)
    return (
        [*(hook for hook in before.values() if hook not in _own_step_hooks), *own_before.values()],
        [*own_after.values(), *after.values()],
    )


#: The dictionary behind `vars(torch.Tensor)`, which guards compare by its version.
methods_of_tensors: dict[str, Any] = gc.get_referents(vars(torch.Tensor))[0]


def containers_of_step_hooks(optimizer: Any) -> list[Any]:
    """Return the dictionaries of hooks before and after the steps of any optimizer, and of this one."""
    return [*_global_step_hooks, optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks]


def mark_stepped(optimizer: torch.optim.Optimizer) -> None:
    """Tell torch's schedulers that the optimizer takes steps without a call of its `step`; else they would warn."""
    vars(optimizer)["_opt_called"] = True
