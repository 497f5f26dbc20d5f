# SPDX-License-Identifier: MIT
"""Runs code under a real NVTX tool, which is compiled here, and gives back what it saw."""

import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from dnnsuite.profiler import nvtx

SOURCE = Path(__file__).with_suffix(".cpp")
ROOTS = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda", "/usr"]


@dataclass(frozen=True)
class Call:
    """One NVTX call; "-" where it has no such thing."""

    process: int
    thread: int
    what: str
    domain: str
    kind: str
    name: str
    payload: str
    range: int


def compile_tool(folder):
    """The path of the tool; skips the test where it cannot be compiled or nothing would call it."""
    includes = [Path(root) / "include" for root in ROOTS if root]
    include = next((path for path in includes if (path / "nvtx3/nvToolsExt.h").exists()), None)
    if include is None:
        pytest.skip("no nvtx3/nvToolsExt.h: install the CUDA toolkit, or set CUDA_HOME")
    if not nvtx.available():
        pytest.skip("this build has no NVTX: reinstall dnnsuite where the CUDA toolkit is")
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler: apt-get install g++")
    tool = folder / "libnvtx_tool.so"
    command = [compiler, "-std=c++20", "-shared", "-fPIC", f"-I{include}", str(SOURCE), "-o", str(tool)]
    subprocess.run(command, check=True, timeout=120)
    return tool


def seen_by(tool, folder, code, *, returncode=0):
    """The calls that `code` makes in a process of its own, which must end with `returncode`."""
    log = folder / "calls"
    log.unlink(missing_ok=True)
    environment = {**os.environ, "NVTX_INJECTION64_PATH": str(tool), "NVTX_TOOL_LOG": str(log)}
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, timeout=60, capture_output=True, text=True
    )
    assert run.returncode == returncode, run.stderr
    lines = [line.split(" ") for line in log.read_text().splitlines()] if log.exists() else []
    return [Call(int(pid), int(tid), *middle, int(last)) for pid, tid, *middle, last in lines]
