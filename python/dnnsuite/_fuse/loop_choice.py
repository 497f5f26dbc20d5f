# SPDX-License-Identifier: MIT
"""Choice between two ways to run an array's models: all at once, or a loop over plain torch modules.

It is measured on the first steps, forward and backward, for each shape of input, and kept per machine: on those that a
loop by hand takes, and on those of a `StepRunner` that cannot be captured. The result does not depend on it, but for
rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .._torch import at_end_of_backward, transforming, tree_flatten, tree_leaves, tree_unflatten
from .._ways import Trial, key_of
from ..nn.model_tensor import state
from ..ops.device import on_cpu
from .code.call_user_code import check_width, joined
from .code.one_by_one import ModelParts, plain_models_of
from .code.own_values import ModuleCoverage, bare_class, is_fused
from .code.plain_models import PlainModels, following
from .single_model import parts_of

FUSED, LOOP = "all at once", "a loop over the models"
_LEVEL = 0.97  # the loop must take less than this share of the other's time
_BY_HAND = {"turns": 4, "most": 12, "untimed": {FUSED: 17, LOOP: 1}}  # of each way, after the first steps
_IN_A_RUNNER = {"timed": 2, "untimed": 1}  # whose steps are warm by then, and whose user waits for its choices
_UNENDED = 12  # steps in a loop whose backward pass was not seen to end, until the loop is given up
_MOST_SHAPES = 8  # of inputs that are measured; others run as the last one that was
_PLAIN = (bool, int, float, str, type(None))


class LoopChoice:
    """The ways of one array, for each shape of input, unless one is `forced`."""

    def __init__(self, root: Any, B: int) -> None:
        self.root, self.B = root, B
        self.forced: str | None = None
        self.in_step = False  # of a runner
        self.runs = 0  # calls of the array by hand
        self.shown = 0  # of these, those whose traces in Python the array shows
        self.looping = False  # the last call was forced into a loop, and was one
        self.why = ""  # the models run one by one; empty: they do not
        self.report = root._fused_report if is_fused(root) else ModuleCoverage()
        self._trials: dict[Any, Trial[str]] = {}
        self._last: Trial[str] | None = None  # of the last call
        self._unended = 0  # steps in a loop
        self.plain: Any = None  # `PlainModels`, once they are needed

    def __getstate__(self) -> dict[str, Any]:
        """Leave out, in a copy, what was made for calls."""
        return {**vars(self), "_trials": {}, "_last": None, "plain": None, "why": "", "looping": False}

    def call(self, args: Any, kwargs: Any, fused: Callable[..., Any]) -> Any:
        """Run the models the faster way; `fused` runs all at once."""
        self.runs += 1
        if state.B or transforming():
            return fused(*args, **kwargs)
        needed = is_fused(self.root) and bool(self.root._fused_report.reason)
        self._last = None
        if needed or self.forced is not None:
            wanted = (needed or self.forced == LOOP) and self._can(args, kwargs)
            self.looping = wanted and (needed or not self.plain.seen(args, kwargs).acts)
            return self._loop(args, kwargs) if self.looping else fused(*args, **kwargs)
        trial = self._last = self._trial(args, kwargs)
        if trial is None:
            return fused(*args, **kwargs)
        way = trial.now
        if way == LOOP and (
            self._unended > _UNENDED or not self._can(args, kwargs) or self.plain.seen(args, kwargs).acts
        ):
            trial.settle(way := FUSED)
        self.why = trial.why if trial.done and way == LOOP else ""
        if trial.done:
            return self._loop(args, kwargs) if way == LOOP else fused(*args, **kwargs)
        self._unended += way == LOOP
        begin = _clock()
        output = self._loop(args, kwargs) if way == LOOP else fused(*args, **kwargs)
        self._watch(output, trial, way, _clock() - begin)
        return output

    def _watch(self, output: Any, trial: Trial[str], way: str, forward_s: float) -> None:
        """Tell a trial the time of a step: of its forward, and of its backward, if one can come, from the first
        gradient of an output on."""
        begun: list[float] = []

        def end() -> None:
            self._unended = 0
            trial.add(forward_s + (_clock() - begun[0] if begun else 0.0), way)

        def begin(grad: torch.Tensor) -> None:
            if not begun and at_end_of_backward is not None:
                begun.append(_clock())
                at_end_of_backward(end)

        outputs = [x for x in tree_leaves(output) if isinstance(x, torch.Tensor) and x.requires_grad]
        for x in outputs:
            x.register_hook(begin)
        if not outputs:
            end()

    @property
    def models(self) -> list[Any]:
        """The plain models of the last loop."""
        found: list[Any] = self.plain.models
        return found

    def follows(self) -> bool:
        """Give the models of the last loop what was set in the array since; False if they must be made anew."""
        return bool(self.plain.follow())

    def _trial(self, args: Any, kwargs: Any) -> Trial[str] | None:
        key = _signature(args, kwargs)
        if key is None:
            return None
        key = (*key, self.root.training, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"))
        trial = self._trials.get(key)
        if trial is None:
            if len(self._trials) >= _MOST_SHAPES:
                return next(reversed(self._trials.values()))
            one = at_end_of_backward is None or not self._on_cpu() or self.B == 1
            ways = (FUSED,) if one else (FUSED, LOOP)
            how: Any = _IN_A_RUNNER if self.in_step else _BY_HAND
            trial = self._trials[key] = Trial(ways, self._described(key), level=_LEVEL, **how)
        return trial

    def _on_cpu(self) -> bool:
        return all(on_cpu(p) for p in self.root.parameters())

    def _described(self, key: tuple[Any, ...]) -> str:
        kinds = [f"{bare_class(m).__module__}.{bare_class(m).__qualname__}{_options(m)}" for m in parts_of(self.root)]
        shapes = [list(p.shape) for p in self.root.parameters()]
        return key_of("fused or loop", kinds, shapes, str(key), torch.get_num_threads())

    def _can(self, args: Any, kwargs: Any) -> bool:
        """True if the plain models compute the same as the array."""
        parts = self.root.__dict__.get("_fused_parts")
        if parts is None:
            self.plain = following(self.plain, self.root, self.B)
        else:
            if self.plain is not None and self.plain is not parts.plain:
                self.plain.give_settings()
            self.plain = parts.plain_models()
        if any(not isinstance(leaf, (torch.Tensor, *_PLAIN)) for leaf in _flat((args, kwargs))):
            return False
        seen = self.plain.known(args) or self.plain.seen(*self._of_models(args, kwargs, 1)[0])
        return not seen.refusal

    def _of_models(self, args: Any, kwargs: Any, models: int) -> list[tuple[Any, dict[str, Any]]]:
        leaves, spec = tree_flatten((args, kwargs))
        parts: list[Any] = [[leaf] * self.B for leaf in leaves]
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor) and leaf.dim():
                check_width(leaf, self.B)
                parts[place] = leaf.unbind(0)
        return [tree_unflatten([own[index] for own in parts], spec) for index in range(models)]

    def _loop(self, args: Any, kwargs: Any) -> Any:
        begin = time.perf_counter()
        output = joined(self.plain.run(self._of_models(args, kwargs, self.B)), lambda value: value)
        if is_fused(self.root) and not self.report.reason and self.plain.acted():
            self._stay()
        self.report.seconds += time.perf_counter() - begin
        self.report.calls += 1
        return output

    def _stay(self) -> None:
        """Run the models one by one from now on: their code, which acted on nothing when it was tried, has begun to
        keep something, and each model has its own."""
        self.report.reason = "in a loop over the models, their code has begun to set attributes"
        parts = self.root._fused_parts = ModelParts(self.root)
        parts.plain = self.plain = PlainModels(self.root, self.B, self.plain)


def _options(module: torch.nn.Module) -> str:
    """Describe the counts, words and switches in a module's attributes, by which code of one class may do little or
    much; not its other numbers, which a sweep sets."""
    held = {name: value for name, value in vars(module).items() if isinstance(value, (bool, int, str))}
    return str(sorted((name, held[name]) for name in held if name != "training" and name[0] != "_") or "")


def _clock() -> float:
    """Read seconds: of this thread's work where it works alone, which a busy neighbour does not lengthen."""
    return time.thread_time() if torch.get_num_threads() == 1 else time.perf_counter()


def _signature(args: Any, kwargs: Any) -> tuple[Any, ...] | None:
    """Describe the layout of arguments; None if one is no tensor and no number."""
    found: list[Any] = []
    for value in _flat((args, kwargs)):
        if type(value) is torch.Tensor:
            found += (value.shape, value.dtype, value.requires_grad, value.stride())
        elif isinstance(value, _PLAIN):
            found.append(value)
        else:
            return None
    return tuple(found)


def _flat(value: Any) -> Iterable[Any]:
    if type(value) in (tuple, list):
        for part in value:
            yield from _flat(part)
    elif type(value) is dict:
        yield tuple(value).__repr__()
        yield from _flat(list(value.values()))
    else:
        yield value


_FORCED = {None: None, True: LOOP, False: FUSED}


def _choice_of(array: torch.nn.Module) -> LoopChoice | None:
    choice = getattr(array, "_choice", None)
    return choice if isinstance(choice, LoopChoice) else None


def run_in_a_loop(array: torch.nn.Module, loop: bool | None) -> None:
    """Run the models of `array` in a loop or, wherever they can, at once; None leaves it to the array's measurement."""
    choice = _choice_of(array)
    if choice is not None:
        choice.forced, choice.why = _FORCED[loop], ""


@contextmanager
def in_step(array: torch.nn.Module, loop: bool | None) -> Iterator[None]:
    """Context manager: a step of a runner, which runs the models of `array` as `run_in_a_loop` says."""
    choice = _choice_of(array)
    if choice is None:
        yield
        return
    before = choice.forced, choice.in_step
    choice.forced, choice.in_step = _FORCED[loop], True
    try:
        yield
    finally:
        choice.forced, choice.in_step = before


def chosen_loop(array: torch.nn.Module) -> bool | None:
    """Return True if an array runs its models in a loop by its own choice, False if not; None while it is measured."""
    choice = _choice_of(array)
    trial = None if choice is None else choice._last
    return None if trial is not None and not trial.done else trial is not None and trial.now == LOOP


def runs_of(array: torch.nn.Module) -> int:
    """Count the calls of an array since it was made or edited."""
    choice = vars(array).get("_fused_choice")
    return 0 if choice is None else int(choice.runs)


def loops(array: torch.nn.Module) -> bool:
    """Return True if the last call of an array that was told to run in a loop did so."""
    choice = _choice_of(array)
    return choice is not None and choice.looping


def run_apart(array: torch.nn.Module) -> bool:
    """Return True if the models of `array` run one by one, with all of their code, which sets nothing in them."""
    root = array.__dict__.get("_root", array)
    report, plain = root.__dict__.get("_fused_report"), [*plain_models_of(array), *plain_models_of(root)]
    return report is not None and bool(report.reason) and bool(plain) and not any(one.may_act for one in plain)
