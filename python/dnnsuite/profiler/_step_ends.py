# SPDX-License-Identifier: MIT
"""Ends of steps in an unchanged script: an optimizer's step, or, where there is no optimizer, the end of backward."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["STEP_ON", "StepEnd", "StepEnds"]

STEP_ON = ("auto", "optimizer", "backward")
_WITHOUT_OPTIMIZER = (
    2  # backwards that end before they count as steps, where no torch.optim optimizer was made
)
_WITH_OPTIMIZER = 64  # and where one was made: gradients may be accumulated before it steps


class StepEnd(NamedTuple):
    """The end of a step: what ended it, the loop that it belongs to, and the device of its tensors."""

    kind: str  # "optimizer" or "backward"
    loop: object
    device: str


class StepEnds:
    """Observer of torch.optim and torch.autograd that calls `ended` at each end of a step.

    Args:
        ended: called in the thread that made the step.
        on: one of :data:`STEP_ON`. `auto`: the optimizers' steps; the ends of backward once it is clear that no
            optimizer steps.
    """

    def __init__(self, ended: Callable[[StepEnd], None], on: str = "auto") -> None:
        self._ended, self._on = ended, on
        self._kind: str | None = None if on == "auto" else on
        self._made = self._backwards = 0
        self._depth = threading.local()
        self._lock = threading.Lock()

    @property
    def kind(self) -> str:
        """Event that ends a step: `optimizer`, `backward`, or `auto` while undecided."""
        return self._kind or "auto"

    def attach_optimizers(self) -> None:
        """Make every optimizer call back after its step and after torch's hooks: opening a window changes the list of
        hooks, which torch iterates over before.
        """
        torch, Optimizer = sys.modules["torch"], sys.modules["torch.optim.optimizer"].Optimizer
        wrap, initialise = Optimizer.profile_hook_step, Optimizer.__init__

        @functools.wraps(initialise)
        def counted(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            self._made += 1
            initialise(optimizer, *args, **kwargs)

        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            step = wrap(function)

            @functools.wraps(step)
            def stepped(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                result = step(optimizer, *args, **kwargs)
                if not torch.compiler.is_compiling():
                    self.optimizer_stepped(optimizer)
                return result

            return stepped

        Optimizer.__init__ = counted
        Optimizer.profile_hook_step = staticmethod(profile_hook_step)

    def attach_backward(self) -> None:
        """Wrap `torch.autograd.backward`, which `Tensor.backward` calls, to report the end of the outermost one."""
        torch, autograd = sys.modules["torch"], sys.modules["torch.autograd"]
        function: Callable[..., Any] = autograd.backward

        @functools.wraps(function)
        def backward(*args: Any, **kwargs: Any) -> Any:
            outer = getattr(self._depth, "open", 0)
            self._depth.open = outer + 1  # checkpoints call it from inside of it
            try:
                result = function(*args, **kwargs)
            finally:
                self._depth.open = outer
            if not outer and not torch.compiler.is_compiling():
                self.backward_ended(args[0] if args else kwargs.get("tensors"))
            return result

        autograd.backward = backward  # type: ignore[attr-defined]

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Report an optimizer's step, unless backward ends the steps."""
        if self._settle("optimizer"):
            self._ended(StepEnd("optimizer", optimizer, _device_of_optimizer(optimizer)))

    def backward_ended(self, tensors: Any) -> None:
        """Report the end of a backward pass if no optimizer ends the steps."""
        thread = threading.current_thread()
        if self._kind == "optimizer" or type(thread).__name__ == "_DummyThread":
            return  # of torch's own threads, in which checkpoints run: a part of a step
        with self._lock:
            self._backwards += 1
            patience = _WITH_OPTIMIZER if self._made else _WITHOUT_OPTIMIZER
        if self._kind == "backward" or (self._backwards >= patience and self._settle("backward")):
            self._ended(StepEnd("backward", thread, _device_of_tensors(tensors)))

    def _settle(self, kind: str) -> bool:
        """Return True if steps end by `kind`; the first call decides."""
        with self._lock:
            self._kind = self._kind or kind
        return self._kind == kind


def _device_of_optimizer(optimizer: Any) -> str:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            return str(parameter.device.type)
    return "cpu"


def _device_of_tensors(tensors: Any) -> str:
    first = next(iter(tensors), None) if isinstance(tensors, (list, tuple)) else tensors
    device = getattr(first, "device", None)
    return str(getattr(device, "type", "cpu"))
