# SPDX-License-Identifier: MIT
"""Functions of torch that are changed or put aside, and its hooks: clipping and initial values of tensors of arrays,
activation checkpoints, the cache of parametrizations, hooks of every module and of an optimizer's steps.
"""

from __future__ import annotations

import functools
import gc
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils.checkpoint
from torch.nn.utils import parametrize
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .lookup import get, missing, note_lost
from .names import NAMES

_clip_functions: list[Any] = get("clip")


def take_over_clipping(total_norm: Callable[..., Any], clip: Callable[..., Any]) -> None:
    """Let calls of torch's `get_total_norm` and `clip_grads_with_norm_` go to these functions, which get torch's own as
    their first argument. The change is inside of torch's functions, so code that has imported them sees it."""
    for function, own in zip(_clip_functions, (total_norm, clip), strict=False):
        cell = _wrapped(function)
        if not isinstance(cell.cell_contents, functools.partial):
            cell.cell_contents = functools.partial(own, cell.cell_contents)


def _wrapped(function: Any) -> Any:
    """Return the cell in which torch's `_no_grad` keeps the function that it wraps."""
    return function.__closure__[function.__code__.co_freevars.index("func")]


try:
    for _clip_function in _clip_functions:
        _wrapped(_clip_function)
except (AttributeError, TypeError, ValueError):  # wrapped in another way
    _clip_functions = []
    note_lost("clip")


_counts: list[Any] = get("fan counts")


def take_over_fan_counts(part_to_count: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Let torch count those of `part_to_count(weight)`: the weight itself, or of an array's one model's part."""
    for original in _counts:

        @functools.wraps(original)
        def count(tensor: torch.Tensor, original: Any = original) -> Any:
            return original(part_to_count(tensor))

        setattr(torch.nn.init, original.__name__, count)


_checkpoint = get("checkpoint")


class Checkpoints:
    """Context manager: inside, torch's checkpoints (of all threads) are made by `without_reentrant` and `reentrant`.

    Both take what torch's own take and get it as their first argument: the generator function
    `(function, *options, *args)`, and `apply(function, preserve_rng_state, *args)` of the autograd.Function. torch's
    own are back in place when the last such block has ended.
    """

    def __init__(self, without_reentrant: Callable[..., Any], reentrant: Callable[..., Any]) -> None:
        self._lock, self._users = threading.Lock(), 0
        found, self._own = _checkpoint, dict[str, Any]()
        if found:
            generator, function = (name.rpartition(".")[2] for name in NAMES["checkpoint"].names)
            self._own = {generator: found[0], function: found[1]}
            self._ours = {
                generator: partial(without_reentrant, found[0]),
                function: SimpleNamespace(apply=partial(reentrant, found[1].apply)),
            }

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1 and self._own:
                vars(torch.utils.checkpoint).update(self._ours)

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                vars(torch.utils.checkpoint).update(self._own)


_known = bool(get("parametrizations"))


def caches_parametrizations() -> bool:
    """Return True inside of `parametrize.cached`, in whichever thread that was entered."""
    return _known and parametrize._cache_enabled > 0


_NOTHING: AbstractContextManager[None] = nullcontext()


def own_parametrizations() -> AbstractContextManager[None]:
    """Context manager: keep what is cached already from the code inside, and the other way round.

    torch takes two copies of a module for one: its cache is that of the class that a parametrization has made.
    """
    return _other_cache() if caches_parametrizations() else _NOTHING


@contextmanager
def _other_cache() -> Iterator[None]:
    held, parametrize._cache = parametrize._cache, {}
    try:
        yield
    finally:
        parametrize._cache = held


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
