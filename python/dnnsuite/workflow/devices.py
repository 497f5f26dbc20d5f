# SPDX-License-Identifier: MIT
"""The MPS daemon and MIG instances as context managers that put the GPU back as it was.

Not run on a GPU yet: the commands and their order are tested against recorded answers of the tools.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from .._runs.interrupts import deferred
from ..errors import Unavailable

__all__ = ["MIG_PROFILES", "Environment", "Tools", "mig_instances", "mig_unavailable", "mps_daemon", "mps_servers",
           "mps_unavailable", "whole_gpu"]  # fmt: skip

Environment = dict[str, str]

# GPU-instance profile ids for n replicas: as large as n equal-ish slices get (0 = 7g, 9 = 3g, 14 = 2g, 19 =
# 1g).
MIG_PROFILES = (
    "0",
    "9,9",
    "14,14,14",
    "14,14,14,19",
    "14,14,19,19,19",
    "14,19,19,19,19,19",
    "19,19,19,19,19,19,19",
)

_NO_INSTANCES = 6  # nvidia-smi's exit status when there is nothing to destroy
TOOL_TIMEOUT_S = 60.0


class Run(Protocol):
    """Runs one command: (arguments, standard input, extra environment) → what it returned."""

    def __call__(
        self, argv: Sequence[str], stdin: str = "", environment: Environment | None = None
    ) -> subprocess.CompletedProcess[str]: ...


def _run(
    argv: Sequence[str], stdin: str = "", environment: Environment | None = None
) -> subprocess.CompletedProcess[str]:
    import os

    try:
        return subprocess.run(
            list(argv),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(list(argv), 124, "", f"no answer within {TOOL_TIMEOUT_S:.0f} s")


class Tools:
    """NVIDIA's command line tools for one GPU, named by its number or, for MPS alone, by its UUID (`GPU-…`)."""

    def __init__(
        self, gpu: int | str = 0, run: Run = _run, which: Callable[[str], str | None] = shutil.which
    ) -> None:
        self.gpu, self.run, self.which = gpu, run, which

    def need(self, name: str, package: str) -> None:
        if self.which(name) is None:
            raise Unavailable(f"{name} not found", "PATH", f"it comes with {package}")

    def smi(self, *arguments: str) -> str:
        """Output of `nvidia-smi -i GPU ...`; Unavailable with its own words when it fails."""
        argv = ["nvidia-smi", "-i", str(self.gpu), *arguments]
        done = self.run(argv)
        if done.returncode:
            words = (done.stderr.strip() or done.stdout.strip()).replace("\n", " ")
            raise Unavailable(
                f"`{' '.join(argv)}` failed ({done.returncode}): {words}", "", "root may be needed"
            )
        return done.stdout

    def query(self, field: str) -> str:
        return self.smi(f"--query-gpu={field}", "--format=csv,noheader").strip()

    def mig_enabled(self) -> bool | None:
        """None on a GPU that cannot be split."""
        answer = self.query("mig.mode.current").lower()
        return {"enabled": True, "disabled": False}.get(answer)

    def mig_uuids(self) -> list[str]:
        """Ids of this GPU's MIG instances, in nvidia-smi's order."""
        listing = self.smi("-L")
        mine = re.split(r"^GPU (?=\d+:)", listing, flags=re.MULTILINE)
        blocks = [block for block in mine if block.startswith(f"{self.gpu}:")]
        return re.findall(r"UUID: (MIG-[^)\s]+)\)", "".join(blocks))


def mps_unavailable(device: str, tools: Tools | None = None) -> str | None:
    """Why MPS cannot be used here, or None."""
    return _reason(device, "MPS", lambda: _check_mps(tools or Tools()))


def mig_unavailable(device: str, tools: Tools | None = None) -> str | None:
    """Why MIG cannot be used here, or None."""
    return _reason(device, "MIG", lambda: _check_mig(tools or Tools()))


def _reason(device: str, what: str, check: Callable[[], None]) -> str | None:
    if device != "cuda":
        return f"{what} needs an NVIDIA GPU; this workflow runs on {device}"
    try:
        check()
    except Unavailable as error:
        return str(error)
    return None


def _check_mps(tools: Tools) -> None:
    tools.need("nvidia-smi", "the NVIDIA driver")
    tools.need(
        "nvidia-cuda-mps-control", "the NVIDIA driver (packages nvidia-compute-utils, nvidia-cuda-mps)"
    )
    if tools.mig_enabled():
        raise Unavailable(
            "MPS beside MIG: the GPU is in MIG mode", "nvidia-smi", "`nvidia-smi -mig 0` leaves it"
        )


def _check_mig(tools: Tools) -> None:
    tools.need("nvidia-smi", "the NVIDIA driver")
    enabled = tools.mig_enabled()
    if enabled is None:
        raise Unavailable("this GPU cannot be split (MIG: A100, H100 and later)", "nvidia-smi")
    if enabled and tools.mig_uuids():
        raise Unavailable(
            "the GPU has MIG instances already, which are not ours to destroy",
            "nvidia-smi -L",
            "`nvidia-smi mig -dci && nvidia-smi mig -dgi` removes them",
        )


@contextmanager
def mps_daemon(n: int, tools: Tools | None = None, exclusive: bool = True) -> Iterator[list[Environment]]:
    """A Multi-Process Service daemon of our own; yields the environment of each of n client processes.

    If `exclusive`, the compute mode becomes EXCLUSIVE_PROCESS, so that nobody passes by the daemon; it has to stay as
    it is where a process that is no client is on the GPU, too. All is put back at the end.

    Raises:
        Unavailable: a tool is missing or refuses.
    """
    tools = tools or Tools()
    _check_mps(tools)
    with ExitStack() as undo:
        folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="dnnsuite-mps-"))
        environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(Path(folder) / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(Path(folder) / "log"),
        }
        for path in environment.values():
            Path(path).mkdir()
        before = tools.query("compute_mode")  # "Default", "Exclusive_Process", "Prohibited"
        with deferred():
            if exclusive and before.lower() != "exclusive_process":
                undo.callback(tools.run, ["nvidia-smi", "-i", str(tools.gpu), "-c", before.upper()])
                tools.smi("-c", "EXCLUSIVE_PROCESS")
            undo.callback(tools.run, ["nvidia-cuda-mps-control"], "quit\n", environment)
            visible = {"CUDA_VISIBLE_DEVICES": str(tools.gpu)}
            started = tools.run(["nvidia-cuda-mps-control", "-d"], "", {**environment, **visible})
            if started.returncode:
                raise Unavailable(
                    f"the MPS daemon did not start: {started.stderr.strip()}",
                    "",
                    "end the one running: `echo quit | nvidia-cuda-mps-control`",
                )
        yield [dict(environment) for _ in range(n)]


def mps_servers(client: Environment, tools: Tools | None = None) -> list[int]:
    """Process ids of the servers that a daemon has started for its clients; none where nobody has come to it.

    Args:
        client: the environment of a client, from `mps_daemon`.
    """
    answer = (tools or Tools()).run(["nvidia-cuda-mps-control"], "get_server_list\n", client)
    return [int(word) for word in answer.stdout.split() if word.isdigit()]


@contextmanager
def mig_instances(n: int, tools: Tools | None = None) -> Iterator[list[Environment]]:
    """The GPU split into n instances; yields one environment per process, each seeing its own instance.

    MIG mode is switched on where it was off. Instances are destroyed and the mode put back at the end.

    Raises:
        Unavailable: the GPU cannot be split so, is in use, has instances already, or root is missing.
    """
    if not 1 <= n <= len(MIG_PROFILES):
        raise Unavailable(f"a GPU cannot be split into {n} MIG instances (at most {len(MIG_PROFILES)})")
    tools = tools or Tools()
    _check_mig(tools)
    with ExitStack() as undo:
        with deferred():
            if not tools.mig_enabled():
                undo.callback(tools.run, ["nvidia-smi", "-i", str(tools.gpu), "-mig", "0"])
                tools.smi("-mig", "1")
                if not tools.mig_enabled():
                    raise Unavailable(
                        "MIG mode is pending, not on", "nvidia-smi", "it waits until no process uses the GPU"
                    )
            undo.callback(_destroy_instances, tools)
            tools.smi("mig", "-cgi", MIG_PROFILES[n - 1], "-C")
            uuids = tools.mig_uuids()
            if len(uuids) != n:
                raise Unavailable(
                    f"asked for {n} MIG instances, nvidia-smi lists {len(uuids)}", "nvidia-smi -L"
                )
        yield [{"CUDA_VISIBLE_DEVICES": uuid} for uuid in uuids]


@contextmanager
def whole_gpu(n: int, tools: Tools | None = None) -> Iterator[list[Environment]]:
    """All of the GPU for n processes: nothing to do, unless MIG mode is on, where one instance has to span
    it.

    Raises:
        Unavailable: the GPU is in MIG mode and already split by someone else.
    """
    tools = tools or Tools()
    if tools.which("nvidia-smi") is None or not tools.mig_enabled():
        yield [{} for _ in range(n)]
        return
    with mig_instances(1, tools) as (environment,):
        yield [dict(environment) for _ in range(n)]


def _destroy_instances(tools: Tools) -> None:
    """Compute instances first, then the GPU instances that held them. "There is none" is fine."""
    for flag in ("-dci", "-dgi"):
        done = tools.run(["nvidia-smi", "mig", "-i", str(tools.gpu), flag])
        if done.returncode not in (0, _NO_INSTANCES):
            import warnings

            warnings.warn(
                f"nvidia-smi mig {flag} failed: {done.stderr.strip()}", RuntimeWarning, stacklevel=2
            )
