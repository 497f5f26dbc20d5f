# SPDX-License-Identifier: MIT
"""NVIDIA's command line tools for one GPU. Not run on a GPU yet: tested against recorded answers of the tools."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Protocol

from ..errors import Unavailable

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
