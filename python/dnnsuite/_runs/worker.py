# SPDX-License-Identifier: MIT
"""One worker process of any kind of run: `python -m dnnsuite._runs.worker SPEC.json`.

Limits itself, imports the task that its spec names, lets it work, writes `result.json` into its directory and ends.
The exit status only repeats the result (0 ok, 1 failed, 74 cannot write). A task is a function
`(WorkerSpec, Siblings) -> dict` that calls :meth:`Siblings.wait` once, when it is set up, or goes through
:meth:`Siblings.orders`. Standard input is a socket to the group: one byte tells that this worker is set up; one answers
that all are, or lines of JSON are orders and answers of a worker that takes turns.
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
from pathlib import Path
from typing import Any

from .._files import write_json
from .failures import attempt, classify, leave, status_of
from .limits import die_with_parent, limit_memory, offer_to_oom_killer, peak_rss_bytes
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


if __name__ == "__main__":
    leave(work(WorkerSpec.read(Path(sys.argv[1]))))
