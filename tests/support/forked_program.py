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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """How a program ended: as `subprocess.run` tells it."""

    returncode: int
    stdout: str
    stderr: str


_host: list[subprocess.Popen[str]] = []


def run(program: str, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Ended:
    """Run a program, with `sys.argv[1:]` as given and `env` beside this process's environment, and wait for it."""
    return run_together(program, [env or {}], *arguments, cwd=cwd)[0]


def run_together(
    program: str, environments: Sequence[Mapping[str, str]], *arguments: str, cwd: Path | None = None
) -> list[Ended]:
    """Run a program in a process for each environment, all at once, and wait for all."""
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
            "cwd": str(cwd or Path.cwd()), "environments": [{**os.environ, **env} for env in environments],
        }  # fmt: skip
        to.write(json.dumps(order) + "\n")
        to.flush()
        statuses: list[int] = json.loads(answers.readline())
        return [
            Ended(status, *(Path(folder, f"{name}{i}").read_text() for name in ("stdout", "stderr")))
            for i, status in enumerate(statuses)
        ]


def _child(order: dict[str, Any], index: int) -> None:
    """Do what is ordered, in a fork; its status is that of the interpreter."""
    os.environ.clear()
    os.environ.update(order["environments"][index])
    os.chdir(order["cwd"])
    for number, name in enumerate(("stdout", "stderr"), 1):
        file = os.open(Path(order["folder"], f"{name}{index}"), os.O_WRONLY | os.O_CREAT)
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
        order, children = json.loads(line), []
        for index in range(len(order["environments"])):
            children.append(os.fork())
            if not children[-1]:
                _child(order, index)
                return  # and end as any program does
        print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children], flush=True)


if __name__ == "__main__":
    _serve()
