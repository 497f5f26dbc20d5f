# SPDX-License-Identifier: MIT
"""One worker process of any kind of run: `python -m dnnsuite._runs.worker SPEC.json`; and its side of taking turns.

Limits itself, imports the task that its spec names, lets it work, writes `result.json` into its directory and ends.
The exit status only repeats the result (0 ok, 1 failed, 74 cannot write). A task is a function
`(WorkerSpec, Siblings) -> dict` that calls :meth:`Siblings.wait` once, when it is set up, or goes through
:meth:`Siblings.orders`. Standard input is a socket to the group: one byte tells that this worker is set up; one answers
that all are, or lines of JSON are orders and answers of a worker that takes turns:

* `{"do": "settle"}`: train until steps run as all further ones will, which an array's first steps try out;
* `{"do": "block", "epoch": 3, "seconds": 0.06}` or `"steps": 4` instead of seconds: train and answer with the times;
  with `"ends": true` the epoch is over then;
* `{"do": "last", "disturbed": [3]}`: what is known of the blocks; whatever comes last is done.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._files import write_json
from .._torch_threads import end_helpers
from .failures import attempt, classify, leave, status_of
from .limits import die_with_parent, limit_memory, offer_to_oom_killer, peak_rss_bytes
from .monitor import cpu_tree_s
from .rates import Sample, Steps
from .spec import RESULT_FILE, WorkerSpec, import_plugins

Result = dict[str, Any]


class Siblings:
    """Other workers of a group, whose timed windows begin together."""

    def __init__(self, group: socket.socket | None) -> None:
        self._group = group

    def wait(self) -> None:
        """Tell the group that this worker is set up; return when all are. At once where there is no group.

        Raises:
            InterruptedError: the group's process ended.
        """
        if self._group is None:
            return
        try:
            self._group.sendall(b"r")
            gone = self._group.recv(1) != b"g"
        except ConnectionError:
            gone = True
        if gone:
            raise InterruptedError("the parent ended before all workers were ready")

    def orders(self, alone: Sequence[Mapping[str, Any]] = ()) -> Iterator[Mapping[str, Any]]:
        """Tell that this worker is set up; then yield each order, until there are no more.

        Each is answered by :meth:`answer` before the next one is asked for. Waiting for one uses no CPU.

        Args:
            alone: the orders where there is no group, as of a worker that was started by hand.

        Raises:
            InterruptedError: the group's process ended.
        """
        if self._group is None:
            yield from alone
            return
        with suppress(ConnectionError):
            self._group.sendall(b"r")
            for line in self._group.makefile("r", encoding="utf-8"):
                order: dict[str, Any] = json.loads(line)
                if not order:
                    return
                yield order
        raise InterruptedError("the parent ended before the last turn")

    def answer(self, result: Mapping[str, Any]) -> None:
        """Answer the order that was yielded last."""
        if self._group is not None:
            self._group.sendall(json.dumps(result).encode() + b"\n")


Task = Callable[[WorkerSpec, Siblings], Result]


def leads() -> bool:
    """True in the process of a worker that reports: the first of those that torchrun started, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def task_named(name: str) -> Task:
    """Return the function that `module:function` names."""
    module, _, function = name.partition(":")
    found: Task = getattr(importlib.import_module(module), function)
    return found


def _group() -> socket.socket | None:
    """Socket to the group, which is the leading process's standard input; the job's own input becomes empty."""
    group = None
    if leads():
        copy = os.dup(0)
        try:
            group = socket.socket(fileno=copy)
        except OSError:  # started by hand
            os.close(copy)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return group


def _process(spec: WorkerSpec) -> Result:
    """Facts of this process for the record."""
    torch = sys.modules.get("torch")
    about: Result = {
        "pid": os.getpid(),
        "python": platform.python_version(),
        "torch": str(torch.__version__) if torch else None,
        "torch_threads": torch.get_num_threads() if torch else None,
        "cpus_allowed": sorted(os.sched_getaffinity(0)),
        "peak_rss_bytes": peak_rss_bytes(),
        "cpu_s": time.process_time(),  # imports, set-up and held-out data too
        "memory_limit_bytes": spec.memory_limit_bytes,
    }
    if torch and torch.cuda.is_available() and torch.cuda.is_initialized():
        about["device_name"] = torch.cuda.get_device_name()
        about["peak_cuda_bytes"] = torch.cuda.max_memory_allocated()
        about["tf32"] = torch.backends.cuda.matmul.allow_tf32
        about["cudnn_benchmark"] = torch.backends.cudnn.benchmark
    return about


def _done(spec: WorkerSpec, group: socket.socket | None) -> Result:
    import_plugins(spec.plugins, spec.sys_path)
    return task_named(spec.task)(spec, Siblings(group))


def _tell(path: Path, result: Result) -> None:
    """Write the result. Of several processes the leading one writes it, or the first that fails.

    The others fail after it, because it is gone: that is not what went wrong.
    """
    if result["status"] == "ok":
        if leads():
            write_json(path, result)
        return
    own = path.with_name(f"result-{os.getpid()}.json")
    write_json(own, result)
    with suppress(FileExistsError):
        os.link(own, path)
    own.unlink()


def work(spec: WorkerSpec) -> int:
    """Do the work that the spec describes; return the exit status."""
    # torchrun, which starts the processes of a distributed job, is their parent.
    die_with_parent(spec.parent_pid if spec.processes == 1 else os.getppid())
    offer_to_oom_killer()
    limit_memory(spec.memory_limit_bytes)
    group = _group()

    def told() -> Result:
        result = {"failure": None, "message": "", **attempt(lambda: _done(spec, group), classify)}
        result["process"] = _process(spec)
        _tell(spec.folder / RESULT_FILE, result)
        return result

    return status_of(told)


# Steps and seconds until an array's steps are recorded and its shards chosen.
LEAST_WARM_UP, _MOST_WARM_UP, _WARM_UP_S = 3, 2000, 30.0
_MOST_STEPS = 1000  # of a block
_LEAD_IN_S = 0.03  # of a step up to which one more precedes a block, to warm the caches that others have used


class Trains(Protocol):
    """Trainer whose steps are timed: a job."""

    def step(self) -> None: ...
    def synchronize(self) -> None: ...
    @property
    def items_per_step(self) -> int: ...


class Stepper(Protocol):
    """Trainer that can be warmed up; it may have `synchronize` and `settled`."""

    def step(self) -> None: ...


class Clock(Protocol):
    """Observer of the steps of one block; calls nest as its loop does, and `end_epoch` follows the synchronise."""

    @property
    def asynchronous(self) -> bool: ...
    def begin_epoch(self) -> None: ...
    def begin_step(self) -> None: ...
    def end_step(self, items: int) -> None: ...
    def end_epoch(self) -> None: ...
    def steps(self) -> Steps: ...


def settle(job: Stepper, least: int = LEAST_WARM_UP) -> float:
    """Train until steps run as all further ones will, `least` steps at least; return the seconds of the last one."""
    if least == 0 and is_settled(job):
        return 0.0
    until_s = time.perf_counter() + _WARM_UP_S
    step_s = 0.0
    for done in range(1, _MOST_WARM_UP + 1):
        begin_s = time.perf_counter()
        job.step()
        getattr(job, "synchronize", lambda: None)()
        step_s = time.perf_counter() - begin_s
        if done >= least and (is_settled(job) or time.perf_counter() > until_s):
            break
    return step_s


def is_settled(job: Stepper) -> bool:
    """True if steps run as all further ones will, as far as the job can tell."""
    return bool(getattr(job, "settled", True))


@dataclass
class TurnTaker:
    """Steps of a job, block after block.

    Args:
        clock_of: number of steps → clock that dates them.
        after: called with the order after each block, as to check the losses.
    """

    job: Trains
    clock_of: Callable[[int], Clock]
    after: Callable[[Mapping[str, Any]], None] = lambda order: None
    blocks: list[tuple[int, Steps]] = field(default_factory=list)  # with their epochs
    cpu_s: list[float] = field(default_factory=list)  # of each block
    asynchronous: bool = False
    disturbed: frozenset[int] = frozenset()  # blocks, by their place
    _step_s: float = 0.0

    def obey(self, siblings: Siblings, alone: Sequence[Mapping[str, Any]] = ()) -> Iterator[Mapping[str, Any]]:
        """Follow all orders; those of other kinds are yielded, to be done and answered by the caller."""
        for order in siblings.orders(alone):
            begin_s = _cpu_s()
            if order["do"] == "settle":
                self._step_s = settle(self.job, order["least"])
                answer = {"settled": is_settled(self.job)}
            elif order["do"] == "block":
                answer = self.block(order)
            elif order["do"] == "last":
                self.disturbed, answer = frozenset(order["disturbed"]), {}
            else:
                yield order
                answer = {}
            end_helpers()  # they would wait for more work by spinning
            siblings.answer({**answer, "own_s": _cpu_s() - begin_s})

    def steps_in(self, order: Mapping[str, Any]) -> int:
        """Steps of a block of this length, by what the last block's took."""
        asked: int | None = order.get("steps")
        return asked or max(1, min(_MOST_STEPS, round(order["seconds"] / max(self._step_s, 1e-6))))

    def block(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Train and time one block; return its times for the group."""
        steps = self.steps_in(order)
        if self._step_s < _LEAD_IN_S and order.get("steps") is None:
            self.job.step()
            self.job.synchronize()
        clock, items = self.clock_of(steps), self.job.items_per_step
        cpu_s, thread = _cpu_s(), _thread()
        clock.begin_epoch()
        for _ in range(steps):
            clock.begin_step()
            self.job.step()
            clock.end_step(items)
        self.job.synchronize()
        clock.end_epoch()
        cpu_s = _cpu_s() - cpu_s
        found, asleep_s = clock.steps(), _thread().asleep_s(thread)
        self._step_s = float(found.stops_ns[-1] - found.starts_ns[0]) * 1e-9 / steps
        self.blocks.append((order["epoch"], found))
        self.cpu_s.append(cpu_s)
        self.asynchronous |= clock.asynchronous
        self.after(order)
        return {
            "start_ns": int(found.starts_ns[0]), "stops_ns": found.stops_ns.tolist(), "items": int(found.items[0]),
            "cpu_s": cpu_s, "asynchronous": clock.asynchronous, "asleep_s": asleep_s,
        }  # fmt: skip

    def samples(self, warm_up: int) -> list[Sample]:
        """Return all steps, those of the first `warm_up` blocks as warm-up."""
        return [
            Sample(epoch, start, stop, float(items), "train" if i >= warm_up else "warmup",
                   "neighbours" if i in self.disturbed else "")
            for i, (epoch, steps) in enumerate(self.blocks)
            for start, stop, items in zip(
                steps.starts_ns.tolist(), steps.stops_ns.tolist(), steps.items.tolist(), strict=True
            )
        ]  # fmt: skip

    def epochs_s(self) -> list[tuple[float, float, int]]:
        """Return (start, stop, items) of each epoch on a clock that stands while others have their turns, in seconds
        since 1970."""
        if not self.blocks:
            return []
        now_s = time.time() + self.blocks[0][1].starts_ns[0] * 1e-9 - time.monotonic()
        made: dict[int, tuple[float, float, int]] = {}
        for epoch, steps in self.blocks:
            start_s, _, items = made.get(epoch, (now_s, now_s, 0))
            now_s += float(steps.stops_ns[-1] - steps.starts_ns[0]) * 1e-9
            made[epoch] = (start_s, now_s, items + int(np.sum(steps.items)))
        return list(made.values())


class _Moment(NamedTuple):
    """Time, and what the calling thread has worked and waited for a CPU so far, in seconds."""

    at_s: float
    worked_s: float
    waited_s: float

    def asleep_s(self, before: _Moment) -> float:
        """Seconds since `before` in which the thread slept: for a disk, a timer, or helpers."""
        return max(0.0, self.at_s - before.at_s - (self.worked_s - before.worked_s) - (self.waited_s - before.waited_s))


def _thread() -> _Moment:
    waited_s = 0.0
    with suppress(OSError, IndexError, ValueError):
        waited_s = int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) * 1e-9
    return _Moment(time.monotonic(), time.thread_time(), waited_s)


def _cpu_s() -> float:
    """CPU seconds of this process and its children."""
    return time.process_time() + cpu_tree_s(os.getpid())


if __name__ == "__main__":
    leave(work(WorkerSpec.read(Path(sys.argv[1]))))
