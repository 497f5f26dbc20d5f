# SPDX-License-Identifier: MIT
"""NVIDIA's command line tools for one GPU, and changes of it that are put back at the end of a block, or by the next
process where this one was killed.

Each change is noted in a file of the cache folder before it is made. The file of a process that has ended names what it
left behind: its MPS daemon, its MIG instances, the modes it set. Not run on a GPU yet: tested against recorded answers
of the tools.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from .._files import OutputError, cache_folder, read_json, write_json
from .._runs.interrupts import deferred
from ..errors import Error, Unavailable

Environment = dict[str, str]

NO_INSTANCES = 6  # nvidia-smi's exit status when there is nothing to destroy
TOOL_TIMEOUT_S = 60.0


class Run(Protocol):
    """Runner of one command: (arguments, standard input, extra environment) → its result."""

    def __call__(
        self, argv: Sequence[str], stdin: str = "", environment: Environment | None = None
    ) -> subprocess.CompletedProcess[str]: ...


def run_tool(
    argv: Sequence[str], stdin: str = "", environment: Environment | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command; one that does not answer in `TOOL_TIMEOUT_S` is ended, with status 124."""
    try:
        return subprocess.run(
            list(argv), input=stdin, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(list(argv), 124, "", f"no answer within {TOOL_TIMEOUT_S:.0f} s")


def _first_visible() -> int | str:
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"
    return int(first) if first.isdigit() else first


class Tools:
    """NVIDIA's command line tools for one GPU, named by its number or, for MPS alone, by its UUID (`GPU-…`).

    By default it is the first that this process sees.
    """

    def __init__(
        self, gpu: int | str | None = None, run: Run = run_tool, which: Callable[[str], str | None] = shutil.which
    ) -> None:
        self.gpu, self.run, self.which = _first_visible() if gpu is None else gpu, run, which

    def of_gpu(self, gpu: int | str) -> Tools:
        """Return the same tools for another GPU."""
        return Tools(gpu, self.run, self.which)

    def need(self, name: str, package: str) -> None:
        """Raise Unavailable, naming the package it comes with, if there is no such command."""
        if self.which(name) is None:
            raise Unavailable(f"{name} not found", "PATH", f"it comes with {package}")

    def smi(self, *arguments: str) -> str:
        """Return the output of `nvidia-smi -i GPU ...`. Raises Unavailable with its own words when it fails."""
        return self._output(["nvidia-smi", "-i", str(self.gpu), *arguments])

    def mig(self, *arguments: str) -> str:
        """Return the output of `nvidia-smi mig ... -i GPU`. Raises Unavailable with its own words when it fails."""
        return self._output(self.mig_command(*arguments))

    def mig_command(self, *arguments: str) -> list[str]:
        """Return the command `nvidia-smi mig ...` for this GPU: its `-i` belongs to `mig`."""
        return ["nvidia-smi", "mig", *arguments, "-i", str(self.gpu)]

    def _output(self, argv: list[str]) -> str:
        done = self.run(argv)
        if done.returncode:
            words = (done.stderr.strip() or done.stdout.strip()).replace("\n", " ")
            raise Unavailable(f"`{' '.join(argv)}` failed ({done.returncode}): {words}", "", "root may be needed")
        return done.stdout

    def query(self, field: str) -> str:
        """Return a field of `nvidia-smi --query-gpu`."""
        return self.smi(f"--query-gpu={field}", "--format=csv,noheader").strip()

    def mig_enabled(self) -> bool | None:
        """Return True if MIG is on; None on a GPU that cannot be split."""
        answer = self.query("mig.mode.current").lower()
        return {"enabled": True, "disabled": False}.get(answer)

    def mig_uuids(self) -> list[str]:
        """Ids of this GPU's MIG instances, in nvidia-smi's order."""
        listing = self.smi("-L")
        mine = re.split(r"^GPU (?=\d+:)", listing, flags=re.MULTILINE)
        blocks = [block for block in mine if block.startswith(f"{self.gpu}:")]
        return re.findall(r"UUID: (MIG-[^)\s]+)\)", "".join(blocks))


_MPS = "nvidia-cuda-mps"  # as names of processes begin, which the kernel cuts to 15 letters
_END_S = 2.0

Change = dict[str, Any]


class Undo:
    """A `with` block at whose end the noted changes of a GPU are undone, last first; a signal waits for that."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._changes: list[Change] = []
        self._file = _folder() / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.json"

    def __enter__(self) -> Undo:
        return self

    def note(self, what: str, **values: Any) -> None:
        """Note a change that is about to be made.

        Args:
            what: `compute_mode` (`before`), `mps` (`folder`), `mig_mode`, or `mig_instances` (`uuids`: those made, None
                as long as they are not known). A second note of the same kind replaces the first.

        Raises:
            OutputError: it cannot be written; nothing is changed yet.
        """
        changes = [each for each in self._changes if each["what"] != what]
        changes.append({"what": what, "gpu": self._tools.gpu, **values})
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot write {self._file.parent}: {error.strerror}") from error
        write_json(self._file, {**_owner(), "changes": changes})
        self._changes = changes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with deferred():
            if self._changes:
                _undo(self._tools, self._file, self._changes)


def recover(tools: Tools) -> None:
    """Undo changes that processes of this machine noted and were killed before undoing."""
    if not _folder().is_dir():
        return
    import filelock

    with filelock.FileLock(_folder() / ".lock"), deferred():
        for file in sorted(_folder().glob("*.json")):
            try:
                noted = read_json(file)
                if _is_dead(noted):
                    _undo(tools, file, noted["changes"])
            except (Error, KeyError, TypeError):  # cut by a full disk: it was written before any change
                file.unlink(missing_ok=True)


def _folder() -> Path:
    return cache_folder() / "gpu"


def _owner() -> dict[str, Any]:
    """Identity of this process, by which others can tell if it lives."""
    return {"pid": os.getpid(), "began": _began(os.getpid()), "host": socket.gethostname(), "pids": _namespace()}


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _began(pid: int) -> int | None:
    """Start time of a process in ticks, which tells it from a later one of the same number; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def _is_dead(noted: dict[str, Any]) -> bool:
    """Return True if the process that wrote it has ended. Of other machines and containers that cannot be told."""
    here = (noted["host"], noted["pids"]) == (socket.gethostname(), _namespace())
    return here and _began(noted["pid"]) != noted["began"]


def _undo(tools: Tools, file: Path, changes: list[Change]) -> None:
    """Undo changes, last first; those that cannot be undone stay in the file, with a warning, for a later try."""
    left: list[Change] = []
    for change in reversed(changes):
        try:
            _undo_one(tools.of_gpu(change["gpu"]), change)
        except (Error, OSError) as error:
            left.insert(0, change)
            warnings.warn(f"the GPU is not as it was ({change['what']}): {error}", RuntimeWarning, stacklevel=3)
    if left and file.is_file():
        write_json(file, {**read_json(file), "changes": left})
    else:
        file.unlink(missing_ok=True)


def _undo_one(tools: Tools, change: Change) -> None:
    match change["what"]:
        case "compute_mode":
            tools.smi("-c", change["before"])
        case "mps":
            _end_mps(tools, Path(change["folder"]))
        case "mig_instances":
            _destroy_instances(tools, change["uuids"])
        case "mig_mode":
            tools.smi("-mig", "0")


def mps_environment(folder: Path) -> Environment:
    """Return the variables by which a daemon and its clients find each other in a folder of their own."""
    return {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}


def _end_mps(tools: Tools, folder: Path) -> None:
    """Ask the daemon to quit, end what is left of it and its servers, and remove its folder."""
    environment = mps_environment(folder)
    if folder.is_dir():
        tools.run(["nvidia-cuda-mps-control"], "quit\n", environment)  # a daemon that was killed does not answer
    until_s = time.monotonic() + _END_S
    while (left := list(_mps_processes(environment))) and time.monotonic() < until_s:
        time.sleep(0.05)
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _mps_processes(environment: Environment) -> Iterator[int]:
    """Processes of MPS that were started with this environment."""
    wanted = f"CUDA_MPS_PIPE_DIRECTORY={environment['CUDA_MPS_PIPE_DIRECTORY']}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if (place / "comm").read_text().startswith(_MPS) and wanted in (place / "environ").read_bytes().split(
                b"\0"
            ):
                yield int(place.name)


def _destroy_instances(tools: Tools, uuids: list[str] | None) -> None:
    """Destroy compute instances, then the GPU instances that held them. "There is none" is fine.

    Raises:
        Error: they cannot be destroyed, or others have been made beside them since.
    """
    others = sorted({*tools.mig_uuids()} - {*uuids}) if uuids is not None else []
    if others:
        raise Error(f"MIG instances of somebody else are on GPU {tools.gpu}: {', '.join(others)}")
    for flag in ("-dci", "-dgi"):
        done = tools.run(tools.mig_command(flag))
        if done.returncode not in (0, NO_INSTANCES):
            raise Error(f"`nvidia-smi mig {flag}` failed: {done.stderr.strip()}")
