# SPDX-License-Identifier: MIT
"""State of autograd: the backward pass under way, gradients in forward mode, transforms, a user's own Function."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .lookup import find, get, note_lost, one
from .names import NAMES


def _search_for_backward() -> int:
    """0 in a backward pass of this thread, by its call stack; -1 outside, as torch's own."""
    frame: Any = sys._getframe(1)
    again = False
    while frame is not None:
        module, name = frame.f_globals.get("__name__"), frame.f_code.co_name
        if module == "torch.autograd" and name in ("backward", "grad"):
            return 0
        if module == "torch.utils.checkpoint":
            again = name != "checkpoint"  # in a thread of autograd's own only what runs the forward again is below us
        frame = frame.f_back
    return 0 if again else -1


backward_pass: Callable[[], int] = one("backward", _search_for_backward)
"""The number of the backward pass that this thread is in; -1 outside of one."""

at_end_of_backward: Callable[[Callable[[], None]], None] | None = one("end of backward", None)
"""Calls a function once the backward pass that this thread is in has ended; None where that cannot be."""

_will_execute: Callable[[Any], bool] | None = one("asked gradients", None)


def gradient_asked(node: Any) -> bool:
    """Return True if the backward pass under way needs the gradient that goes to a node of the graph."""
    if node is None or _will_execute is None:
        return node is not None
    try:
        return bool(_will_execute(node))
    except RuntimeError:  # torch's answer for a leaf whose gradient is asked for
        return True


_engine: list[Any] = get("engine")


def look_at_what_is_differentiated(look: Callable[[Sequence[Any]], None]) -> None:
    """Call `look(tensors)` before each pass of `torch.autograd.backward` and `grad`; it may raise."""
    for run in (run for run in _engine if getattr(torch.autograd, run.__name__) is run):

        @functools.wraps(run)
        def looked(outputs: Sequence[Any], *args: Any, run: Any = run, **kwargs: Any) -> Any:
            look(outputs)
            return run(outputs, *args, **kwargs)

        setattr(torch.autograd, run.__name__, looked)


below_autograd: Any = one("below autograd", torch.no_grad)
"""Context manager: operators skip their gradient, recorded or registered."""


def _transforms() -> Callable[[], Any]:
    active, level = map(find, NAMES["transforms"].names)
    if active is not None:
        return active
    get("transforms")
    return (lambda: False) if level is None else (lambda: level() is not None)


transforming: Callable[[], Any] = _transforms()
"""True inside a transform of `torch.func` (grad, vmap, jvp)."""


def _apply_code() -> Any:
    """Return the code object that every call of an `autograd.Function` runs through; None where there is no such
    thing."""
    code = one("function", None)
    seen: list[bool] = []

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            frame: Any = sys._getframe(1)
            while frame is not None and frame.f_code is not code:
                frame = frame.f_back
            seen.append(frame is not None)
            return x

    Probe.apply(torch.empty(0, device="cpu"))
    if code is None or seen != [True]:
        note_lost("function")
        return None
    return code


function_apply_code: Any = _apply_code()
"""The code of `torch.autograd.Function.apply`, on the call stack of every user's Function; None where it is lost."""


def _forward_gradients() -> Callable[[], bool]:
    """True outside of every autograd.Function; False always where torch does not tell them apart so."""
    enabled: Callable[[], bool] = one("forward gradients", lambda: False)
    seen: list[bool] = []

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            seen.append(enabled())
            return x

    Probe.apply(torch.empty(0, device="cpu"))
    if seen == [False]:
        return enabled
    note_lost("forward gradients")
    return lambda: False


forward_gradients: Callable[[], bool] = _forward_gradients()
"""True where forward-mode gradients are on: not in the forward of an autograd.Function, nor in inference mode."""

get("gradient hooks")


HOOKS_OF_GRADIENTS = tuple(
    name for name in ("_backward_hooks", "_post_accumulate_grad_hooks") if hasattr(torch.Tensor, name)
)
"""Attributes of a tensor under which torch keeps what waits for its gradient."""


def has_gradient_hook(tensor: Any) -> bool:
    """True if something waits for the tensor's gradient."""
    return any(getattr(tensor, name, None) for name in HOOKS_OF_GRADIENTS)
