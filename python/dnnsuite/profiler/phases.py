# SPDX-License-Identifier: MIT
"""Phases of the training loop, by torch's hooks: waiting for data, forward, backward, optimizer."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import Unavailable
from ..timing import now_ns
from .instrument import define

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PHASE_COLUMNS", "OptimizerSeen", "PhasesInstrument"]

PHASE_COLUMNS = {
    "phase": "data: in a DataLoader's __next__; forward: in the outermost module's call; backward: in "
    "torch.autograd.backward or grad; optimizer: in an optimizer's step",
    "thread": "native id of the thread that ran it",
    "t0_ns": "begin, ns of CLOCK_MONOTONIC",
    "t1_ns": "end, ns of CLOCK_MONOTONIC; on a GPU the work that it launched may end later",
    "cpu_ns": "CPU time of the thread in it (CLOCK_THREAD_CPUTIME_ID)",
}


class _PhaseRow(NamedTuple):
    phase: str
    thread: int
    t0_ns: int
    t1_ns: int
    cpu_ns: int


class OptimizerSeen(NamedTuple):
    """Optimizer of a loop: its class, and True if it updates in one pass; None if it has no such option."""

    name: str
    fused: bool | None


class _Stack(threading.local):
    """Open phases of a thread. Only the outermost counts, so that the phases of a thread never overlap."""

    def __init__(self) -> None:
        self.open: list[tuple[str, int, int]] = []


class PhasesInstrument:
    """Phases of steps, outermost first, without a change to the loop.

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
        self._rows: list[_PhaseRow] = []
        self._undo: contextlib.ExitStack | None = None
        self._stack = _Stack()

    def open(self) -> None:
        if "torch" not in sys.modules:
            raise Unavailable("the process has not imported torch", remedy="import torch before profiling")

    def start(self) -> None:
        with contextlib.ExitStack() as undo:
            undo.enter_context(self._data_loader())
            if self._with_modules:
                undo.enter_context(self._modules())
            undo.enter_context(self._optimizers())
            for name in ("backward", "grad"):
                undo.enter_context(self._wrapped("torch.autograd", name))
            self._undo = undo.pop_all()

    @property
    def running(self) -> bool:
        """True while a window is open."""
        return self._undo is not None

    def step(self, index: int) -> None:
        self._stack.open.clear()  # an optimizer that raised had no end

    def stop(self) -> None:
        undo, self._undo = self._undo, None
        self._stack = _Stack()
        if undo is not None:
            undo.close()

    def close(self) -> None:
        self.stop()

    def tables(self) -> dict[str, pd.DataFrame]:
        import pandas as pd

        table = pd.DataFrame(self._rows, columns=list(_PhaseRow._fields))
        return {"phases": define(table.sort_values("t0_ns", ignore_index=True), PHASE_COLUMNS)}

    def notes(self) -> list[str]:
        return []

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Context manager: its block is phase `name`, unless another is open."""
        self._begin(name)
        try:
            yield
        finally:
            self._end()

    def _begin(self, name: str) -> None:
        self._stack.open.append((name, now_ns(), time.thread_time_ns()))

    def _end(self) -> None:
        opened = self._stack.open
        if not opened:  # the window opened inside of it
            return
        name, t0_ns, cpu0_ns = opened.pop()
        if not opened:
            cpu_ns = time.thread_time_ns() - cpu0_ns
            self._rows.append(_PhaseRow(name, threading.get_native_id(), t0_ns, now_ns(), cpu_ns))

    @contextlib.contextmanager
    def _modules(self) -> Iterator[None]:
        from torch.compiler import is_compiling
        from torch.nn.modules import module

        def before(*_: Any) -> None:
            if not is_compiling():
                self._begin("forward")

        def after(*_: Any) -> None:
            if not is_compiling():
                self._end()

        first = module.register_module_forward_pre_hook(before)
        second = module.register_module_forward_hook(after, always_call=True)
        try:
            yield
        finally:
            first.remove()
            second.remove()

    @contextlib.contextmanager
    def _optimizers(self) -> Iterator[None]:
        from torch.optim import optimizer

        def before(stepping: Any, *_: Any) -> None:
            kind = type(stepping)
            fused = bool(stepping.defaults["fused"]) if "fused" in stepping.defaults else None
            home = "torch.optim" if kind.__module__.startswith("torch.optim.") else kind.__module__
            self.optimizer = OptimizerSeen(f"{home}.{kind.__name__}", fused)
            self._begin("optimizer")

        first = optimizer.register_optimizer_step_pre_hook(before)
        second = optimizer.register_optimizer_step_post_hook(lambda *_: self._end())
        try:
            yield
        finally:
            first.remove()
            second.remove()

    @contextlib.contextmanager
    def _data_loader(self) -> Iterator[None]:
        from .._torch import loader_iterator, loader_workers

        if loader_iterator is None:
            yield
            return

        def watched(following: Callable[[Any], Any]) -> Callable[[Any], Any]:
            @functools.wraps(following)
            def next_batch(iterator: Any) -> Any:
                self.loader_workers = loader_workers(iterator)
                with self.phase("data"):
                    return following(iterator)

            return next_batch

        with _replaced(loader_iterator, "__next__", watched):
            yield

    @contextlib.contextmanager
    def _wrapped(self, module: str, name: str) -> Iterator[None]:
        def watched(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def backward(*args: Any, **kwargs: Any) -> Any:
                with self.phase("backward"):
                    return function(*args, **kwargs)

            return backward

        with _replaced(sys.modules[module], name, watched):
            yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Context manager: replace `owner.name` by the result of `make`; restores it unless it was replaced again."""
    before = getattr(owner, name)
    ours = make(before)
    setattr(owner, name, ours)
    try:
        yield
    finally:
        if getattr(owner, name) is ours:
            setattr(owner, name, before)
