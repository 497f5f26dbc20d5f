# SPDX-License-Identifier: MIT
"""Ends of steps in an unchanged script.

That is an optimizer's step; where there is no optimizer, the end of backward; where gradients are taken by
`torch.autograd.grad` alone, its end; and where no gradient is computed, as in an inference loop, the end of the
outermost module's call. Which of them it is shows while the script runs: a later kind that says more takes over.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

STEP_ON = ("auto", "optimizer", "backward", "gradient", "forward")
_STRENGTH = {"forward": 0, "gradient": 1, "backward": 2, "optimizer": 2}  # backward stays where it was settled on
# Ends of a kind that pass before they count as steps, (where no torch.optim optimizer was made, where one was): it may
# not have stepped yet, because gradients are accumulated, or because a model is evaluated before it is trained.
_PATIENCE = {"backward": (2, 64), "gradient": (8, 64), "forward": (8, 256)}
_HOOK_WARNING = "Using `torch.compile\\(module\\)` when there are global hooks"


class StepEnd(NamedTuple):
    """The end of a step: what ended it, the loop that it belongs to, and the device of its tensors."""

    kind: str  # one of STEP_ON without auto
    loop: object
    device: str
    before: int = 0  # ends of this kind that had passed when it was settled on


class StepEnds:
    """Observer of torch that calls `ended` at each end of a step.

    Args:
        ended: called in the thread that made the step.
        on: one of :data:`STEP_ON`. `auto`: the optimizers' steps; another kind once it is clear that none steps.
    """

    def __init__(self, ended: Callable[[StepEnd], None], on: str = "auto") -> None:
        self._ended, self._on = ended, on
        self._kind: str | None = None if on == "auto" else on
        self._passed = dict.fromkeys(_PATIENCE, 0)
        self._before = 0
        self.optimizers: list[str] = []  # classes of those that were made
        self.modules: list[str] = []  # of outermost modules that were called, while that may end a step
        self._depth = threading.local()
        self._lock = threading.Lock()
        self._hooks: list[Any] = []  # of modules, while their calls may end steps

    @property
    def kind(self) -> str:
        """Event that ends a step: one of :data:`STEP_ON`, `auto` while undecided."""
        return self._kind or "auto"

    @property
    def remark(self) -> str:
        """Remark on the steps for the reader of a page; empty where an optimizer ends them."""
        made = ", ".join(dict.fromkeys(self.optimizers))
        if self._kind == "backward" and made and self._on == "auto":
            return (
                f"a step is one backward pass: {made} had not stepped after {_PATIENCE['backward'][1]} of them "
                "(micro-batches, whose gradients are accumulated?); --step-on optimizer takes each update as a step"
            )
        if self._kind == "gradient":
            return "a step ends with torch.autograd.grad: no backward ran, and no torch.optim optimizer stepped"
        if self._kind == "forward":
            called = ", ".join(dict.fromkeys(self.modules)) or "the outermost module"
            return f"a step is one call of {called}: no optimizer stepped, and no gradient was taken but by torch.func"
        return ""

    def attach_optimizers(self) -> None:
        """Make every optimizer call back after its step and after torch's hooks: opening a window changes the list of
        hooks, which torch iterates over before. Of steps inside of each other the outermost counts.
        """
        torch, Optimizer = sys.modules["torch"], sys.modules["torch.optim.optimizer"].Optimizer
        wrap, initialise = Optimizer.profile_hook_step, Optimizer.__init__

        @functools.wraps(initialise)
        def counted(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            self.optimizers.append(type(optimizer).__name__)
            initialise(optimizer, *args, **kwargs)

        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            step = wrap(function)

            @functools.wraps(step)
            def stepped(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                with self._inside("optimizer") as outermost:
                    result = step(optimizer, *args, **kwargs)
                if outermost and not torch.compiler.is_compiling():
                    self.optimizer_stepped(optimizer)
                return result

            return stepped

        Optimizer.__init__ = counted
        Optimizer.profile_hook_step = staticmethod(profile_hook_step)

    def attach_backward(self) -> None:
        """Wrap `torch.autograd.backward`, which `Tensor.backward` calls, and `torch.autograd.grad`: the end of the
        outermost one is reported."""
        autograd = sys.modules["torch.autograd"]
        for name, kind in (("backward", "backward"), ("grad", "gradient")):
            setattr(autograd, name, self._reported(getattr(autograd, name), kind))

    def _reported(self, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        torch = sys.modules["torch"]

        @functools.wraps(function)
        def gradients(*args: Any, **kwargs: Any) -> Any:
            with self._inside("gradients") as outermost:  # checkpoints call it from inside of it
                result = function(*args, **kwargs)
            if outermost and not torch.compiler.is_compiling() and not kwargs.get("create_graph"):
                of = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
                thread = threading.current_thread()
                # Threads of torch's own, in which checkpoints run, make a part of a step.
                self._passes(kind, None if type(thread).__name__ == "_DummyThread" else thread, of)
            return result

        return gradients

    def attach_modules(self) -> None:
        """Report the end of the outermost module's call, until a gradient is computed or an optimizer steps."""
        if self._on not in ("auto", "forward"):
            return
        torch, module = sys.modules["torch"], sys.modules["torch.nn.modules.module"]
        # It is in no script's power that there are hooks: nothing is said of them, and nothing raised by -W error.
        warnings.filterwarnings("ignore", _HOOK_WARNING, UserWarning)

        def before(called: Any, _: Any) -> None:
            if not torch.compiler.is_compiling():
                self._depth.modules = getattr(self._depth, "modules", 0) + 1

        def after(called: Any, _: Any, output: Any) -> None:
            if torch.compiler.is_compiling():
                return
            self._depth.modules = max(0, getattr(self._depth, "modules", 0) - 1)
            if not self._depth.modules:
                self.forward_ended(called, output)

        self._hooks = [
            module.register_module_forward_pre_hook(before),
            module.register_module_forward_hook(after, always_call=True),
        ]

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Report an optimizer's step, unless backward ends the steps."""
        if self._settle("optimizer"):
            devices = (parameter.device.type for group in optimizer.param_groups for parameter in group["params"])
            self._ended(StepEnd("optimizer", optimizer, str(next(devices, "cpu")), self._before))

    def forward_ended(self, module: Any, output: Any) -> None:
        """Report the end of a module's call if no gradient is computed."""
        if len(self.modules) < _PATIENCE["forward"][1]:
            self.modules.append(type(module).__name__)
        self._passes("forward", module, output)

    def _passes(self, kind: str, loop: object, tensors: Any) -> None:
        """Report an end of `kind`, if nothing that says more ends the steps."""
        if loop is None or self._is_weaker(kind):
            return
        with self._lock:
            self._passed[kind] += 1
            patience = _PATIENCE[kind][bool(self.optimizers)]
        if kind != "forward":
            self._stop_hooks()
        if self._kind == kind or (self._passed[kind] >= patience and self._settle(kind)):
            self._ended(StepEnd(kind, loop, _device_of_tensors(tensors), self._before))

    def _is_weaker(self, kind: str) -> bool:
        return (
            self._kind is not None
            and self._kind != kind
            and (self._on != "auto" or _STRENGTH[kind] <= _STRENGTH[self._kind])
        )

    def _settle(self, kind: str) -> bool:
        """Return True if steps end by `kind`; the first call decides, until a kind that says more."""
        if self._is_weaker(kind):
            return False
        with self._lock:
            if self._kind != kind:
                self._kind = kind
                self._before = max(0, self._passed.get(kind, 0) - 1)
        if kind != "forward":
            self._stop_hooks()
        return True

    def _stop_hooks(self) -> None:
        if self._on == "auto":
            self.leave()

    def leave(self) -> None:
        """Remove the hooks of modules. Idempotent."""
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.remove()

    @contextlib.contextmanager
    def _inside(self, what: str) -> Iterator[bool]:
        """Context manager: count the depth of the thread's calls; its value is True for the outermost."""
        outer = getattr(self._depth, what, 0)
        setattr(self._depth, what, outer + 1)
        try:
            yield not outer
        finally:
            setattr(self._depth, what, outer)


def _device_of_tensors(tensors: Any) -> str:
    first = next(iter(tensors), None) if isinstance(tensors, (list, tuple)) else tensors
    device = getattr(first, "device", None)
    return str(getattr(device, "type", "cpu"))
