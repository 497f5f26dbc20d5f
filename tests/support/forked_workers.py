# SPDX-License-Identifier: MIT
"""Workers as forks of a process that has imported torch already: the start of each costs seconds otherwise.

A host imports what workers import, and does nothing else. For each worker it forks a process that takes over the files,
folder, CPUs, control group, limits and environment that a new interpreter would get, becomes a child of the test's
process, and runs the module of workers. What a fork cannot do is started as without it: other commands, and variables
that are read when an interpreter or a library starts. A test of the start itself uses the fixture `real_workers`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import pytest

_MODULE = "dnnsuite._runs.worker"
# Read once, when an interpreter, torch or the memory's allocator starts.
_READ_AT_START = ("GLIBC_", "GOMP_", "KMP_", "LD_", "MALLOC_", "MKL_", "OMP_", "PYTHON", "PYTORCH_", "TORCH_")
_WAITING = {"GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0", "OMP_WAIT_POLICY": "passive"}  # changes no result
_TAKEN_OVER = ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "PYTHONPATH", *_WAITING)
_IMPORTED = (
    "torch._dynamo", "torch.utils.data", "dnnsuite._C", "dnnsuite._runs.failures", "dnnsuite._runs.spec",
    "dnnsuite._runs.spec", "dnnsuite.jobs.model_parts", "dnnsuite.nn", "dnnsuite.optim", "dnnsuite.suites.tasks",
    "dnnsuite.tuning.device_task", "dnnsuite.workflow.sweep", "dnnsuite.workflow.tasks",
)  # fmt: skip
_SIZE = 4  # bytes of a number between the processes
_OWNER = os.getpid()
_ADOPTED_WITHIN_S = 60.0
_PR_SET_CHILD_SUBREAPER = 36  # <sys/prctl.h>


def _read_at_start(variables: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in variables.items() if k.startswith(_READ_AT_START) and k not in _TAKEN_OVER}


def _is_worker(command: Sequence[str]) -> bool:
    return list(command[:3]) == [sys.executable, "-m", _MODULE] and len(command) == 4


class _Host:
    """The process that forks workers, as the test's process sees it."""

    def __init__(self) -> None:
        self._own, its = socket.socketpair()
        self._lock = threading.Lock()
        self._variables = _read_at_start(os.environ)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(its.fileno())],
                pass_fds=[its.fileno()], start_new_session=True, env={**os.environ, **_WAITING},
            )  # fmt: skip
        self.pid = self._process.pid
        atexit.register(self._close)

    def start(
        self, command: Sequence[str], variables: Mapping[str, str], files: Sequence[int], **limits: Any
    ) -> int | None:
        """Id of a worker that is a child of this process; None where a fork would not be what the command starts."""
        if _read_at_start(variables) != self._variables:
            return None
        order = {
            "spec": command[3], "variables": dict(variables), "cwd": str(Path.cwd()), "parent": _OWNER,
            "cpus": sorted(os.sched_getaffinity(0)), **limits,
        }  # fmt: skip
        said = json.dumps(order).encode()
        with self._lock:
            _take_orphans(True)
            try:
                socket.send_fds(self._own, [len(said).to_bytes(_SIZE, "big")], list(files))
                self._own.sendall(said)
                pid = int.from_bytes(_exactly(self._own, _SIZE), "big")
            finally:
                _take_orphans(False)
        if not pid:
            raise OSError("a forked worker ended before it began; the host's standard error says why")
        return pid

    def _close(self) -> None:
        if os.getpid() == _OWNER:
            self._own.close()
            self._process.wait()


def _take_orphans(whether: bool) -> None:
    """Let processes below this one whose parent ends become its children."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(whether), 0, 0, 0)


def _exactly(channel: socket.socket, count: int) -> bytes:
    said = b""
    while len(said) < count:
        if not (part := channel.recv(count - len(said))):
            raise ConnectionError("the host of workers has ended")
        said += part
    return said


enabled = True
_hosts: list[_Host] = []


def _host() -> _Host | None:
    """The host of this process; None in a child of it, to which orphans do not come, and where there is a GPU."""
    import torch

    if not enabled or os.getpid() != _OWNER or torch.cuda.is_available():
        return None
    if not _hosts:
        _hosts.append(_Host())
    return _hosts[0]


def hosts() -> list[int]:
    """Ids of the processes that fork workers, which stay to the end of the tests; there is one at most."""
    return [each.pid for each in _hosts]


class _Popen:
    """As much of `subprocess.Popen` as the starter uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None


def _start_process(
    real: Callable[..., Any], command: Sequence[str], variables: Mapping[str, str], files: Sequence[int]
) -> Any:
    if _is_worker(command) and (host := _host()) and (pid := host.start(command, variables, files)):
        return _Popen(pid)
    return real(command, variables, files)


class _Process:
    """As much of `dnnsuite._C.Process` as a partition uses."""

    method = "fork"

    def __init__(self, pid: int) -> None:
        self.id = pid
        self._watch = os.pidfd_open(pid)
        self._end: dict[str, Any] | None = None

    def wait(self, timeout_s: float) -> dict[str, Any] | None:
        """Its end, or None while it runs."""
        if self._end is None and select.select([self._watch], [], [], timeout_s)[0]:
            _, status, used = os.wait4(self.id, 0)
            os.close(self._watch)
            code = os.waitstatus_to_exitcode(status)
            self._end = {
                "code": max(code, 0), "signal": max(-code, 0), "cpu_seconds": used.ru_utime + used.ru_stime,
                "peak_resident_bytes": used.ru_maxrss * 1024,
            }  # fmt: skip
        return self._end

    def send(self, number: int, to_group: bool = False) -> None:
        """Send a signal; nothing after its end."""
        if self._end is None:
            with suppress(ProcessLookupError):
                (os.killpg if to_group else os.kill)(self.id, number)


def _launch(
    real: Callable[..., Any], arguments: Sequence[str], environment: Sequence[str], group: Any = None, **given: Any
) -> Any:
    usual = _is_worker(arguments) and not given["folder"] and not given["mems"] and given["new_session"]
    if usual and min(given["files"]) >= 0 and (host := _host()):
        variables = dict(variable.split("=", 1) for variable in environment)
        limits = {
            "groups": [(each["version"], each["folder"]) for each in group.folders] if group else [],
            "data_bytes": given["data_limit_bytes"],
            **({"cpus": given["cpus"]} if given["cpus"] else {}),
        }
        if pid := host.start(arguments, variables, given["files"], **limits):
            return _Process(pid)
    return real(arguments, environment, group, **given)


def fork_workers(patch: pytest.MonkeyPatch) -> None:
    """Fork the workers that this process starts, until `patch` is undone."""
    from dnnsuite import _C
    from dnnsuite._runs import starters

    patch.setattr(starters, "start_process", partial(_start_process, starters.start_process))
    patch.setattr(_C, "launch", partial(_launch, _C.launch))


def _serve(channel: socket.socket) -> None:
    """Fork a worker for each order, by way of a child that ends at once: the test's process takes its orphans."""
    for module in _IMPORTED:
        importlib.import_module(module)
    gc.freeze()
    while True:
        head, files, _, _ = socket.recv_fds(channel, _SIZE, 3)
        if not head:
            return
        head += _exactly(channel, _SIZE - len(head))
        order = json.loads(_exactly(channel, int.from_bytes(head, "big")))
        told, tell = os.pipe()
        between = os.fork()
        if not between:
            if os.fork():
                os._exit(0)
            for each in (channel.detach(), told):
                os.close(each)
            _become(order, files, tell)
        os.close(tell)
        os.waitpid(between, 0)
        channel.sendall(os.read(told, _SIZE).rjust(_SIZE, b"\0"))
        for each in (told, *files):
            os.close(each)


def _become(order: Mapping[str, Any], files: Sequence[int], tell: int) -> NoReturn:
    """Be what the command would have started."""
    os.setsid()
    end_s = time.monotonic() + _ADOPTED_WITHIN_S
    while os.getppid() != order["parent"]:
        if time.monotonic() > end_s:
            os._exit(1)
        time.sleep(0.0005)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    variables = order["variables"]
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(order["cwd"])
    os.sched_setaffinity(0, order["cpus"])
    if groups := order.get("groups"):
        importlib.import_module("dnnsuite._C").Cgroup.adopt(groups).attach(os.getpid())
    if limit := order.get("data_bytes"):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    named = [folder for folder in variables.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:] = [order["cwd"], *named, *(folder for folder in sys.path[1:] if folder not in named)]
    sys.argv = [_MODULE, order["spec"]]
    if threads := variables.get("OMP_NUM_THREADS"):
        importlib.import_module("torch").set_num_threads(int(threads))
    os.write(tell, os.getpid().to_bytes(_SIZE, "big"))
    os.close(tell)
    sys.modules.pop(_MODULE)  # which tasks import: the one that runs is another, as in an interpreter
    runpy.run_module(_MODULE, run_name="__main__", alter_sys=True)
    os._exit(0)  # a worker ends by itself


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # without the end of libraries, which is long and has nothing to say
