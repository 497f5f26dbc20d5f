# SPDX-License-Identifier: MIT
"""Choice between two ways to run an array's models: all at once, or a loop over plain torch modules.

It is measured on the first steps, forward and backward, for each shape of input, and kept per machine. The result does
not depend on it, but for rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .. import _tune as tune
from .._torch import at_end_of_backward, transforming, tree_leaves
from ..nn.model_tensor import state
from ..ops.device import on_cpu
from .code.call_user_code import check_width
from .code.fused_attributes import ModuleCoverage, bare_class, is_fused
from .code.joined_outputs import joined
from .code.plain_models import PlainModels
from .single_model import parts_of

FUSED, LOOP = "fused", "loop"
_FIRST = 16  # steps of all models at once before a loop is tried
_TIMED = 4  # steps of each way, in turns, after a loop's first
_MORE = 3  # times as many where these tell too little
_CLEAR = 1.15  # times the other's: a difference that few steps tell
_MOST_SHAPES = 8  # of inputs that are measured; others run as the last one that was
_LEVEL = 0.97  # the loop must take less than this share of the other's time
_PLAIN = (bool, int, float, str, type(None))


class WayTrial:
    """Times of the first steps of the two ways, and the one to take next."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._seconds: dict[str, list[float]] = {FUSED: [], LOOP: []}
        self._begun = {FUSED: 0, LOOP: 0}
        known = tune.table().get(key)
        self.chosen: str | None = known[0] if isinstance(known, list) else None
        self.why = f"measured on an earlier run: {known[1]}" if isinstance(known, list) else ""

    def next(self) -> str:
        """Return the way of the next step."""
        fused, loop = (len(self._seconds[way]) for way in (FUSED, LOOP))
        timed = min(loop - 1, fused - _FIRST - 1)
        if self.chosen is None and timed >= _TIMED and (timed >= _MORE * _TIMED or self._clear()):
            self._decide()
        if self.chosen is not None:
            return self.chosen
        way = LOOP if fused - _FIRST >= loop else FUSED
        self._begun[way] += 1
        if way == LOOP and self._begun[LOOP] > loop + 3 * _TIMED:
            self.settle(FUSED, "the backward pass of a loop was not seen to end")
            return FUSED
        return way

    def add(self, way: str, seconds: float) -> None:
        """Take the time of a step."""
        self._seconds[way].append(seconds)

    def settle(self, way: str, why: str) -> None:
        """Choose this `way` without a measurement."""
        self.chosen, self.why = way, why

    def _least(self) -> tuple[float, float]:
        """Return the seconds of the fastest timed step of all at once, and of a loop."""
        return min(self._seconds[FUSED][_FIRST + 1 :]), min(self._seconds[LOOP][1:])

    def _clear(self) -> bool:
        fused_s, loop_s = self._least()
        return max(fused_s, loop_s) > _CLEAR * min(fused_s, loop_s)

    def _decide(self) -> None:
        fused_s, loop_s = self._least()
        way = LOOP if loop_s < _LEVEL * fused_s else FUSED
        why = f"a loop over the models takes {1e3 * loop_s:.3g} ms, all at once {1e3 * fused_s:.3g} ms"
        self.settle(way, f"measured: {why}")
        tune.table().put(self._key, [way, why])


class LoopChoice:
    """The ways of one array, for each shape of input; `forced` is set where steps are timed whole."""

    def __init__(self, root: Any, B: int) -> None:
        self.root, self.B = root, B
        self.forced: str | None = None
        self.runs = 0  # calls of the array by hand
        self.looping = False  # the last call was forced into a loop, and was one
        self.why = ""  # the models run one by one; empty: they do not
        self.report = root._fused_report if is_fused(root) else ModuleCoverage()
        self._trials: dict[Any, WayTrial] = {}
        self.plain: Any = None  # `PlainModels`, once they are needed

    def __getstate__(self) -> dict[str, Any]:
        """Leave out, in a copy, what was made for calls."""
        return {**vars(self), "_trials": {}, "plain": None, "why": "", "looping": False}

    def call(self, args: Any, kwargs: Any, fused: Callable[..., Any]) -> Any:
        """Run the models the faster way; `fused` runs all at once."""
        self.runs += 1
        if state.B or transforming():
            return fused(*args, **kwargs)
        needed = is_fused(self.root) and bool(self.root._fused_report.reason)
        if needed or self.forced is not None:
            wanted = (needed or self.forced == LOOP) and self._can(args, kwargs)
            self.looping = wanted and (needed or not self.plain.has_side_effects(args))
            return self._loop(args, kwargs) if self.looping else fused(*args, **kwargs)
        trial = self._trial(args, kwargs)
        if trial is None:
            return fused(*args, **kwargs)
        way = trial.next()
        if way == LOOP and (not self._can(args, kwargs) or self.plain.has_side_effects(args)):
            trial.settle(FUSED, "")
            way = FUSED
        self.why = trial.why if trial.chosen == LOOP else ""
        if trial.chosen is not None:
            return self._loop(args, kwargs) if way == LOOP else fused(*args, **kwargs)
        begin = _clock()
        output = self._loop(args, kwargs) if way == LOOP else fused(*args, **kwargs)
        _Stopwatch(trial, way, _clock() - begin).watch(output)
        return output

    @property
    def models(self) -> list[Any]:
        """The plain models of the last loop."""
        found: list[Any] = self.plain.models
        return found

    def follows(self) -> bool:
        """Give the models of the last loop what was set in the array since; False if they must be made anew."""
        return bool(self.plain.follow())

    def _trial(self, args: Any, kwargs: Any) -> WayTrial | None:
        key = _signature(args, kwargs)
        if key is None:
            return None
        key = (*key, self.root.training, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"))
        trial = self._trials.get(key)
        if trial is None:
            if len(self._trials) >= _MOST_SHAPES:
                return next(reversed(self._trials.values()))
            trial = self._trials[key] = WayTrial(self._described(key))
            if at_end_of_backward is None or not self._on_cpu() or self.B == 1:
                trial.settle(FUSED, "")
        return trial

    def _on_cpu(self) -> bool:
        return all(on_cpu(p) for p in self.root.parameters())

    def _described(self, key: tuple[Any, ...]) -> str:
        kinds = [f"{bare_class(m).__module__}.{bare_class(m).__qualname__}{_options(m)}" for m in parts_of(self.root)]
        shapes = [list(p.shape) for p in self.root.parameters()]
        return tune.key("fused or loop", kinds, shapes, str(key), torch.get_num_threads())

    def _can(self, args: Any, kwargs: Any) -> bool:
        """True if the plain models compute the same as the array."""
        parts = self.root.__dict__.get("_fused_parts")
        if parts is not None:
            self.plain = parts.plain_models()
        elif self.plain is None or not self.plain.follow():
            self.plain = PlainModels(self.root, self.B)
        if any(not isinstance(leaf, (torch.Tensor, *_PLAIN)) for leaf in _flat((args, kwargs))):
            return False
        refusal = self.plain.known_refusal(args)
        if refusal is None:
            refusal = self.plain.refusal(*self._of_models(args, kwargs, 1)[0])
        return not refusal

    def _of_models(self, args: Any, kwargs: Any, models: int) -> list[tuple[Any, dict[str, Any]]]:
        def parts(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.dim():
                check_width(value, self.B)
                return value.unbind(0)
            if type(value) in (tuple, list):
                return [type(value)(own) for own in zip(*map(parts, value), strict=True)] or [value] * self.B
            if type(value) is dict:
                each = zip(*map(parts, value.values()), strict=True)
                return [dict(zip(value, own, strict=True)) for own in each] or [value] * self.B
            return [value] * self.B

        return list(zip(parts(args), parts(kwargs), strict=True))[:models]

    def _loop(self, args: Any, kwargs: Any) -> Any:
        begin = time.perf_counter()
        output = joined(self.plain.run(self._of_models(args, kwargs, self.B)), lambda value: value)
        self.report.seconds += time.perf_counter() - begin
        self.report.calls += 1
        return output


class _Stopwatch:
    """Time of one step: of its forward, and of its backward from the first gradient of an output on."""

    def __init__(self, trial: WayTrial, way: str, forward_s: float) -> None:
        self._trial, self._way, self._forward_s = trial, way, forward_s
        self._begin: float | None = None

    def watch(self, output: Any) -> None:
        """Wait for the backward pass, if one can come."""
        outputs = [x for x in tree_leaves(output) if isinstance(x, torch.Tensor) and x.requires_grad]
        if not outputs:
            self._trial.add(self._way, self._forward_s)
        for x in outputs:
            x.register_hook(self._started)

    def _started(self, grad: torch.Tensor) -> None:
        if self._begin is None and at_end_of_backward is not None:
            self._begin = _clock()
            at_end_of_backward(self._ended)

    def _ended(self) -> None:
        assert self._begin is not None
        self._trial.add(self._way, self._forward_s + _clock() - self._begin)


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


def run_in_a_loop(array: torch.nn.Module, loop: bool | None, why: str = "") -> None:
    """Run the models of `array` in a loop or, wherever they can, at once; None leaves it to the array's measurement.

    Args:
        why: the reason that `coverage` gives.
    """
    choice = getattr(array, "_choice", None)
    if isinstance(choice, LoopChoice):
        choice.forced = None if loop is None else LOOP if loop else FUSED
        choice.why = why


def runs_of(array: torch.nn.Module) -> int:
    """Count the calls of an array since it was made or edited."""
    choice = vars(array).get("_fused_choice")
    return 0 if choice is None else int(choice.runs)


def loops(array: torch.nn.Module) -> bool:
    """Return True if the last call of an array that was told to run in a loop did so."""
    choice = getattr(array, "_choice", None)
    return isinstance(choice, LoopChoice) and choice.looping


def differ_by_numbers(array: torch.nn.Module) -> bool:
    """Return True if models of a part run one by one, and its code reads numbers of tensors."""
    reports = [m.__dict__.get("_fused_report") for m in parts_of(array.__dict__.get("_root", array))]
    return any(report is not None and report.asked and bool(report.reason) for report in reports)


def asks_for_numbers(array: torch.nn.Module) -> bool:
    """Return True if models that were shards of their own asked for numbers, which all at once may have no answer."""
    reports = [m.__dict__.get("_fused_report") for m in parts_of(array.__dict__.get("_root", array))]
    return any(report is not None and report.alone for report in reports)
