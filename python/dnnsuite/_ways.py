# SPDX-License-Identifier: MIT
"""Choice of the fastest of a few ways to do the same, by a trial whose answer is kept on this machine.

The runs of a `Trial` are often those that are wanted anyway, such as the steps of a training. `fastest` makes runs of
its own: it chooses between ways to compute the same operator, for each shape. Each way runs forward and backward on
tensors like those given, in a separate thread outside of any recording, and on a GPU as a CUDA graph, as it will run
later. The choice is kept in the process and in this machine's table, so a captured step and the eager step use the
same way.

A busy machine may have given an answer, so none is kept for ever. It counts for a week where even the slowest run of
the way that was taken took less than the fastest run of every other, and else for an hour.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from . import host
from ._files import OutputError, cache_folder, write_json
from ._torch import backward_pass, capture_stream, end_failed_capture, transforming

Way = Callable[..., Tensor]

_ROUNDS, _CALLS = 3, 5
_COMPILING_S = 2.0  # in one process
_SLOW = 2.0  # times the fastest way's seconds, from which on a way is not measured again
_chosen: dict[Any, str] = {}
_compiled_s = [0.0]  # spent so far
_streams: dict[torch.device, torch.cuda.Stream] = {}  # one for all measurements: torch's own streams come round
W = TypeVar("W", bound=Hashable)
_CLEAR = 1.15  # times the fastest way's seconds: a difference that few runs tell
_CLEAR_S, _UNCLEAR_S = 7 * 24 * 3600.0, 3600.0  # for so long an answer counts


@dataclasses.dataclass(frozen=True)
class Answer:
    """Answer of a trial.

    Args:
        way: the one that was taken, as JSON has it.
        seconds: fastest and slowest run of each way that was timed, by its name.
        left: names of ways that were not tried for want of time.
        at: time of the trial, in seconds since 1970.
    """

    way: Any
    seconds: dict[str, tuple[float, float]]
    left: tuple[str, ...] = ()
    at: float = dataclasses.field(default_factory=time.time)

    def counts(self, now: float) -> bool:
        """Return True if the ways need not be tried again yet."""
        _, slowest = self.seconds.get(str(self.way), (0.0, math.inf))
        clear = slowest < min((s for way, (s, _) in self.seconds.items() if way != str(self.way)), default=math.inf)
        return 0 <= now - self.at < (_CLEAR_S if clear else _UNCLEAR_S)


class Table:
    """Answers by key, in memory and, where the folder can be written, in one JSON file.

    A file that cannot be read or written costs a trial, never a failure.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self.path, self._now = path, now
        self._lock = threading.Lock()
        self._answers = self._read()

    def _read(self) -> dict[str, Answer]:
        try:
            content = json.loads(self.path.read_text())
            return {key: answer for key, value in content.items() if (answer := _answer_of(value)) is not None}
        except (OSError, ValueError, AttributeError):
            return {}

    def get(self, key: str) -> Answer | None:
        """Return the answer for `key` if there is one that counts."""
        answer = self._answers.get(key)
        return answer if answer is not None and answer.counts(self._now()) else None

    def put(self, key: str, answer: Answer) -> None:
        """Keep `answer`, and take over what other processes have found meanwhile."""
        with self._lock:
            found = self._read()
            newer = {k: one for k, one in self._answers.items() if k not in found or found[k].at < one.at}
            self._answers = {**found, **newer, key: answer}
            with contextlib.suppress(OSError, OutputError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_json(self.path, {key: vars(answer) for key, answer in self._answers.items()})


def _answer_of(value: Any) -> Answer | None:
    """Return an answer as it lies in a file; None for what is none."""
    try:
        seconds = {way: (float(least), float(most)) for way, (least, most) in value["seconds"].items()}
        return Answer(value["way"], seconds, tuple(value["left"]), float(value["at"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


@functools.cache
def table() -> Table:
    """Open the table of this machine: one file per processor, torch version and instruction set."""
    machine = f"{host.cpu_model()}|{torch.__version__}|{torch.backends.cpu.get_cpu_capability()}"
    return Table(cache_folder() / f"ways-{hashlib.sha256(machine.encode()).hexdigest()[:12]}.json")


def key_of(*parts: Any) -> str:
    """Make a table's key of readable parts: what is computed, its shapes, and all else that its speed depends on."""
    return json.dumps(parts, default=str)


class Trial(Generic[W]):
    """Trial of `ways`: do the next run by `now`, and tell its seconds to `add`, until `done`; go on by `now` then.

    The ways take turns, for a machine becomes busy and idle again, and the fastest run of each counts, for what
    disturbs a run makes it slower and never faster.

    Args:
        ways: booleans, numbers or strings, in the order in which they are tried.
        key: name of the answer in this machine's table. One that counts is taken without a trial; None keeps none.
        timed: runs of a way in each turn.
        turns: turns of each way.
        most: turns of each way where the fastest two are less than 15 % apart.
        untimed: first runs of each way, which warm up.
        level: share of the first way's seconds that another must stay below to be taken in its place.
        slow: times the fastest way's seconds, from which on a way gets no further turn.
        climbs: the ways are neighbours, of which one is the best and those further from it are worse: the next one is
            tried only while each was faster than those before it.
    """

    def __init__(
        self,
        ways: Sequence[W],
        key: str | None = None,
        *,
        timed: int = 1,
        turns: int = 1,
        most: int = 0,
        untimed: int | Mapping[W, int] = 0,
        level: float = 1.0,
        slow: float = math.inf,
        climbs: bool = False,
    ) -> None:
        self.ways, self.now, self.done = tuple(ways), ways[0], len(ways) == 1
        self._key, self._timed, self._turns, self._most = key, timed, turns, most
        self._untimed = dict.fromkeys(ways, untimed) if isinstance(untimed, int) else dict(untimed)
        self._level, self._slow, self._climbs = level, slow, climbs
        self._runs: dict[W, list[float]] = {way: [] for way in ways}
        known = None if self.done or key is None else table().get(key)
        self._known = known if known is not None and known.way in ways else None
        if self._known is not None:
            self.settle(self._known.way)

    def add(self, seconds: float, way: W | None = None, warm: bool = False) -> bool:
        """Take the seconds of a run by `now`, or by the `way` that is named; return True if it is none that warms up.
        A `warm` one is the last of those."""
        way = self.now if way is None else way
        if self._untimed[way]:
            self._untimed[way] = 0 if warm else self._untimed[way] - 1
            return False
        self._runs[way].append(seconds)
        if not self.done:
            self._go_on()
        return True

    def _go_on(self) -> None:
        least = {way: min(runs) for way, runs in self._runs.items() if runs}
        most = self._slow * min(least.values())
        going = [way for way in self.ways if least.get(way, 0.0) <= most or not self._turns_of(way)]
        if self._climbs and (tried := list(least))[-1] != min(tried, key=lambda way: least[way]):
            going = [way for way in going if way in least]
        self.now = min(going, key=self._turns_of)
        turns = self._turns_of(self.now)
        if turns < self._turns:
            return
        fastest, *others = sorted(least, key=lambda way: least[way])
        if turns >= self._most or least[others[0]] > _CLEAR * least[fastest]:
            first = self.ways[0]
            self.settle(fastest if least[fastest] < self._level * least[first] else first, keep=True)

    def _turns_of(self, way: W) -> int:
        return len(self._runs[way]) // self._timed

    def settle(self, way: W, keep: bool = False) -> None:
        """End the trial with this way; `keep` it as the answer."""
        self.now, self.done = way, True
        if keep and self._key is not None:
            table().put(self._key, self.answer())

    def answer(self, left: Sequence[str] = ()) -> Answer:
        """Return the answer, with the names of ways that were `left` out."""
        return Answer(self.now, {str(way): (min(s), max(s)) for way, s in self._runs.items() if s}, tuple(left))

    def least(self, way: W) -> float:
        """Return the seconds of the fastest run of a way, in this trial or in the one that is known; NaN for none."""
        known = {} if self._known is None else self._known.seconds
        return min(self._runs[way], default=known.get(str(way), (math.nan,))[0])

    @property
    def why(self) -> str:
        """Times that were measured, in words; empty where none was."""
        told = [f"{way} {1e3 * s:.3g} ms" for way in self.ways if not math.isnan(s := self.least(way))]
        return f"measured{' on an earlier run' * (self._known is not None)}: {', '.join(told)}" if told else ""


def fastest(
    what: str, ways: Mapping[str, Way], inputs: Sequence[Tensor | None], *facts: Any, compiled: Sequence[str] = ()
) -> str:
    """Return the name of the fastest of `ways`; the first one where it cannot be measured now, as in a backward pass,
    where a checkpoint runs a forward again: the thread's own backward would wait for the one that waits for the thread.

    Ways that have to be compiled are measured while a process has spent less than two seconds on them, so that a first
    step does not wait for the kernels of a whole model; what is left is measured by later processes.

    Args:
        what: name of the computation.
        ways: functions of tensors like `inputs`, by name.
        facts: other properties that distinguish computations, such as a stride; hashable.
        compiled: names of ways that are compiled when they first run.
    """
    first = next(iter(ways))
    if len(ways) == 1 or torch.compiler.is_compiling() or transforming() or backward_pass() != -1:
        return first
    device = next(x.device for x in inputs if x is not None)
    autocast = torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type)
    key = (what, str(device), autocast, tuple(ways), facts, *map(_look, inputs))
    known = _chosen.get(key)
    if known is None:
        known = _known_or_measured(key, ways, inputs, autocast or None, compiled)
        if known is None:
            return first
        _chosen[key] = known
    return known


def forget() -> None:
    """Forget the choices of this process, and what they took; the machine's table stays."""
    _chosen.clear()
    _compiled_s[0] = 0.0


def _look(x: Tensor | None) -> Any:
    return None if x is None else (x.shape, x.stride(), x.dtype, x.requires_grad)


def _known_or_measured(
    key: Any,
    ways: Mapping[str, Way],
    inputs: Sequence[Tensor | None],
    autocast: torch.dtype | None,
    compiled: Sequence[str],
) -> str | None:
    device = next(x.device for x in inputs if x is not None)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    described = key_of(name, *map(str, key))
    known = table().get(described)
    if known is not None and known.way in ways and (not known.left or _compiled_s[0] >= _COMPILING_S):
        return str(known.way)
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return None  # nothing may wait for the device now
    answers: list[Answer | None] = []
    like = [_look(x) for x in inputs]
    measure = threading.Thread(
        target=lambda: answers.append(_measured(ways, like, device, autocast, compiled)), name=f"fastest {key[0]}"
    )
    measure.start()
    measure.join()
    if not answers or answers[0] is None:
        return None
    table().put(described, answers[0])
    return str(answers[0].way)


def _stand_in(look: Any, device: torch.device) -> Tensor | None:
    """Return a tensor of the same shape, strides and type; no generator draws its numbers."""
    if look is None:
        return None
    shape, strides, dtype, needs_grad = look
    size = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) if 0 not in shape else 0
    memory = torch.full((size,), 0.5 if dtype.is_floating_point else 0, dtype=dtype, device=device)
    return memory.as_strided(shape, strides).requires_grad_(needs_grad)


def _measured(
    ways: Mapping[str, Way],
    like: Sequence[Any],
    device: torch.device,
    autocast: torch.dtype | None,
    compiled: Sequence[str],
) -> Answer | None:
    """Try the ways that work here; return None if none does."""
    tensors = [_stand_in(look, device) for look in like]
    leaves = [x for x in tensors if x is not None and x.requires_grad]

    def run(way: Way) -> None:
        with torch.autocast(device.type, dtype=autocast) if autocast else contextlib.nullcontext():
            y = way(*tensors)
        if leaves:
            torch.autograd.grad(y, leaves, torch.ones_like(y))

    first: dict[str, float] = {}
    with torch.enable_grad() if leaves else torch.no_grad():
        calls, left = {}, []
        pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None  # only one graph runs at a time
        for name, way in ways.items():
            if name in compiled and _compiled_s[0] >= _COMPILING_S:
                left.append(name)
                continue
            begin = time.perf_counter()
            with contextlib.suppress(RuntimeError, NotImplementedError):  # not here: another way is
                calls[name] = _call(partial(run, way), device, pool)
                first[name] = calls[name]()
            if name not in first and pool is not None:  # it may still take itself for that of a capture
                pool = torch.cuda.graph_pool_handle()
            if name in compiled:
                _compiled_s[0] += time.perf_counter() - begin
        if not first:
            return None
        trial = Trial(list(first), turns=_ROUNDS, slow=_SLOW)
        for name, seconds_of_first in first.items():
            trial.add(seconds_of_first, name)
        while not trial.done:
            trial.add(calls[trial.now]())
    return trial.answer(left)


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of one call: on a GPU the device's time, as a graph; else CPU time of this thread."""
    return _call(call, device)()


def _call(call: Callable[[], object], device: torch.device, pool: Any = None) -> Callable[[], float]:
    """Prepare a call; return a function that makes it and returns its seconds. Graphs of a `pool` share memory."""
    if device.type == "cuda":
        return partial(_replay_seconds, _graph_of(call, device, pool), device)
    call()
    return partial(_thread_seconds, call)


def _thread_seconds(call: Callable[[], object]) -> float:
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def _graph_of(call: Callable[[], object], device: torch.device, pool: Any) -> torch.cuda.CUDAGraph:
    """Capture a call. `torch.cuda.graph` would empty the allocator's cache at each of a model's hundred captures."""
    graph = torch.cuda.CUDAGraph()
    side = _streams.setdefault(device, capture_stream(device))
    with torch.cuda.device(device):
        torch.cuda.synchronize()  # what other streams make of what the call reads
        with torch.cuda.stream(side):
            for _ in range(2):  # libraries choose and allocate
                call()
            side.synchronize()
            free, whole = torch.cuda.mem_get_info(device)
            if free < whole / 4:  # what is cached for other streams cannot be given back during a capture
                torch.cuda.empty_cache()
            pool = torch.cuda.graph_pool_handle() if pool is None else pool
            try:
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    call()
                finally:
                    graph.capture_end()
            except BaseException:
                end_failed_capture(device, side, pool)
                raise
    return graph


def _replay_seconds(graph: torch.cuda.CUDAGraph, device: torch.device) -> float:
    side = _streams[device]
    with torch.cuda.device(device), torch.cuda.stream(side):
        graph.replay()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(side)
        for _ in range(_CALLS):
            graph.replay()
        end.record(side)
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / _CALLS
