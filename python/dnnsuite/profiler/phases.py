# SPDX-License-Identifier: MIT
"""Phases of the training loop, by torch's hooks: waiting for data, forward, backward, optimizer; and the spans that the
user names.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .._lazy import pandas as pd
from ..timing import Spans, now_ns
from .cpu import CLOSURE
from .instrument import HookInstrument, Instrument, define, replaced

PHASE_COLUMNS = {
    "phase": "data: in a DataLoader's __next__; forward: in the outermost module's call; backward: in "
    "torch.autograd.backward or grad; optimizer: in an optimizer's step, but for a closure that it calls, which has "
    "phases of its own",
    "thread": "native id of the thread that ran it",
    "t0_ns": "begin, ns of CLOCK_MONOTONIC",
    "t1_ns": "end, ns of CLOCK_MONOTONIC; on a GPU the work that it launched may end later",
    "cpu_ns": "CPU time of the thread in it (CLOCK_THREAD_CPUTIME_ID)",
}

SPAN_COLUMNS = {
    "name": "the span's name",
    "step": "the step that was set when it began",
    "depth": "how many spans of the thread were open around it",
    "thread": "native id of the thread",
    "t0_ns": "begin, ns of CLOCK_MONOTONIC",
    "t1_ns": "end, ns of CLOCK_MONOTONIC",
    "gpu_ns": "from begin to end on the device's stream by CUDA events; NaN where none was recorded",
}


class OptimizerSeen(NamedTuple):
    """Optimizer of a loop: its class, and True if it updates in one pass; None if it has no such option."""

    name: str
    fused: bool | None

    @classmethod
    def of(cls, optimizer: Any) -> OptimizerSeen:
        """Look at an optimizer: torch's option `fused`, or a class of a library whose updates are fused always."""
        kind = type(optimizer)
        home = "torch.optim" if kind.__module__.startswith("torch.optim.") else kind.__module__
        options = [group["fused"] for group in optimizer.param_groups if "fused" in group]
        fused = all(map(bool, options)) if options else None
        if kind.__module__.startswith("dnnsuite.") or re.match(r"fused|cpu_?adam", kind.__name__, re.IGNORECASE):
            fused = True
        return cls(f"{home}.{kind.__name__}", fused)


class _Stack(threading.local):
    """Open phases of a thread, whose phases never overlap: time counts for one of them, `counts`.

    That is the outermost, but inside of an optimizer's step a closure's forward and backward, and inside of a backward
    pass an optimizer's step, which hooks of gradients may call: then the outer phase is cut in two.
    """

    def __init__(self) -> None:
        self.open: list[tuple[str, str]] = []  # (what was begun, what counts in it)
        self.t0_ns = self.cpu0_ns = 0  # when what counts now began

    @property
    def counts(self) -> str:
        """Phase that time counts for; "" for none."""
        return self.open[-1][1] if self.open else ""


class PhasesInstrument(HookInstrument):
    """Phases of steps without a change to the loop; see :class:`_Stack` for those inside of each other.

    Hooks exist only while a window is open, so other steps run undisturbed. Hooks inside `torch.compile` are not
    called; a compiled model is one forward.

    Args:
        modules: see the forward pass by hooks in all modules. They keep a StepRunner from replaying its steps: False
            for arrays that it trains.
    """

    name = "phases"

    def __init__(self, modules: bool = True) -> None:
        self._with_modules = modules
        self.loader_workers: int | None = None  # of the last DataLoader that was waited for
        self.optimizer: OptimizerSeen | None = None  # the last that stepped
        self._rows: list[tuple[str, int, int, int, int]] = []  # as PHASE_COLUMNS
        self._stack = _Stack()

    def hook(self, undo: contextlib.ExitStack) -> None:
        from .._torch import loader_iterator

        if loader_iterator is not None:
            undo.enter_context(replaced(loader_iterator, "__next__", self._in_data))
        if self._with_modules:
            self._watch_modules(undo)
        self._watch_optimizers(undo)
        for name in ("backward", "grad"):
            undo.enter_context(replaced(sys.modules["torch.autograd"], name, self._in_backward))

    def step(self, index: int) -> None:
        self._stack.open.clear()  # an optimizer that raised had no end

    def stop(self) -> None:
        self._stack = _Stack()
        super().stop()

    def tables(self) -> dict[str, pd.DataFrame]:
        table = pd.DataFrame(self._rows, columns=list(PHASE_COLUMNS))
        return {"phases": define(table.sort_values("t0_ns", ignore_index=True), PHASE_COLUMNS)}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Context manager: its block is phase `name`, unless another is open."""
        self._begin(name)
        try:
            yield
        finally:
            self._end()

    def _begin(self, name: str) -> None:
        outer = self._stack.counts
        if not outer or (outer, name) in _CUTS:
            self._cut()
            self._stack.open.append((name, "" if name == CLOSURE else name))
        else:
            self._stack.open.append((name, outer))

    def _end(self) -> None:
        opened = self._stack.open
        if not opened:  # the window opened inside of it
            return
        if len(opened) == 1 or opened[-2][1] != opened[-1][1]:
            self._cut()
        opened.pop()

    def _cut(self) -> None:
        """End the piece of time that counts for one phase, and begin another."""
        stack, now, cpu_ns = self._stack, now_ns(), time.thread_time_ns()
        if stack.counts:
            spent_ns = cpu_ns - stack.cpu0_ns
            self._rows.append((stack.counts, threading.get_native_id(), stack.t0_ns, now, spent_ns))
        stack.t0_ns, stack.cpu0_ns = now, cpu_ns

    def _watch_modules(self, undo: contextlib.ExitStack) -> None:
        from torch.compiler import is_compiling
        from torch.nn.modules import module

        def before(*_: Any) -> None:
            if not is_compiling():
                self._begin("forward")

        def after(*_: Any) -> None:
            if not is_compiling():
                self._end()

        undo.callback(module.register_module_forward_pre_hook(before).remove)
        undo.callback(module.register_module_forward_hook(after, always_call=True).remove)
        undo.enter_context(_without_warning("Using `torch.compile(module)` when there are global hooks"))

    def _watch_optimizers(self, undo: contextlib.ExitStack) -> None:
        from torch.optim import optimizer

        def before(stepping: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
            self.optimizer = OptimizerSeen.of(stepping)
            self._begin("optimizer")
            with_closure = (args[0], self._closure(args[1]), *args[2:]) if len(args) > 1 else args
            return with_closure, {name: self._closure(each, name) for name, each in kwargs.items()}

        undo.callback(optimizer.register_optimizer_step_pre_hook(before).remove)
        undo.callback(optimizer.register_optimizer_step_post_hook(lambda *_: self._end()).remove)

    def _closure(self, given: Any, name: str = "closure") -> Any:
        """Return a closure that has its phases counted as its own; anything else as it is."""
        if name != "closure" or not callable(given):
            return given
        from torch.autograd.profiler import record_function

        @functools.wraps(given)
        def closure(*args: Any, **kwargs: Any) -> Any:
            with self.phase(CLOSURE), record_function(CLOSURE):
                return given(*args, **kwargs)

        return closure

    def _in_data(self, following: Callable[[Any], Any]) -> Callable[[Any], Any]:
        from .._torch import loader_workers

        @functools.wraps(following)
        def next_batch(iterator: Any) -> Any:
            self.loader_workers = loader_workers(iterator)
            with self.phase("data"):
                return following(iterator)

        return next_batch

    def _in_backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def backward(*args: Any, **kwargs: Any) -> Any:
            with self.phase("backward"):
                return function(*args, **kwargs)

        return backward


# (phase that counts, phase begun in it) where the inner one counts from there on.
_CUTS = {*(("optimizer", inner) for inner in (CLOSURE, "forward", "backward", "data")), ("backward", "optimizer")}


class SpansInstrument(Instrument):
    """Instrument that adds the spans of a :class:`dnnsuite.timing.Spans` to a profile, as table `spans`."""

    name = "spans"

    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    def tables(self) -> dict[str, pd.DataFrame]:
        return {"spans": define(pd.DataFrame(self._spans.columns()), SPAN_COLUMNS)}

    def notes(self) -> list[str]:
        return self._spans.notes()


@contextlib.contextmanager
def _without_warning(begins: str) -> Iterator[None]:
    """Context manager: warnings that begin so are not shown, and no error: the program did nothing to cause them."""
    warnings.filterwarnings("ignore", re.escape(begins), UserWarning)
    ours = warnings.filters[0]
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the program has made its own list meanwhile
            warnings.filters.remove(ours)  # type: ignore[attr-defined]
