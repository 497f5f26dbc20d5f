# SPDX-License-Identifier: MIT
"""Programs in processes that have imported torch and dnnsuite and done nothing else, without the start of each.

A host imports them once and forks a child for every program: what a program sees is what a new interpreter would show
it after these imports. A test of the start itself, or of the imports, starts an interpreter of its own.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """How a program ended: as `subprocess.run` tells it."""

    returncode: int
    stdout: str
    stderr: str


# What Python does with a file: its folder comes first in the path, and its name in the arguments.
_SCRIPT = """
import os, runpy, sys
del sys.argv[0]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""

cpu_s = 0.0  #: CPU seconds of all programs
_host: list[subprocess.Popen[str]] = []


def run(program: str, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Ended:
    """Run a program, with `sys.argv[1:]` as given and `env` beside this process's environment, and wait for it."""
    global cpu_s
    if not _host or _host[0].poll() is not None:
        command = [sys.executable, __file__]
        _host[:] = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)]
        atexit.register(_host[0].communicate)
    to, answers = _host[0].stdin, _host[0].stdout
    assert to is not None
    assert answers is not None
    with tempfile.TemporaryDirectory() as folder:
        order = {
            "program": textwrap.dedent(program), "arguments": arguments, "folder": folder,
            "cwd": str(cwd or Path.cwd()), "environment": {**os.environ, **(env or {})},
        }  # fmt: skip
        to.write(json.dumps(order) + "\n")
        to.flush()
        status, used_s = answers.readline().split()
        cpu_s += float(used_s)
        said = [Path(folder, name).read_text() for name in ("stdout", "stderr")]
    return Ended(int(status), *said)


def script(path: Path | str, *arguments: str, cwd: Path | None = None) -> Ended:
    """Run a file of Python, as `python PATH ARGUMENTS` does, and wait for it."""
    return run(_SCRIPT, str(path), *arguments, cwd=cwd)


def _child(order: dict[str, Any]) -> None:
    """Do what is ordered, in a fork; its status is that of the interpreter."""
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["cwd"])
    for number, name in enumerate(("stdout", "stderr"), 1):
        file = os.open(Path(order["folder"], name), os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.argv[1:], sys.path[0] = order["arguments"], ""
    exec(compile(order["program"], "<program>", "exec"), {"__name__": "__main__"})


def _serve() -> None:

    import dnnsuite.nn
    import dnnsuite.optim

    assert dnnsuite.StepRunner
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _child(json.loads(line))
            return  # and end as any program does
        _, status, used = os.wait4(child, 0)
        print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, flush=True)


if __name__ == "__main__":
    _serve()
