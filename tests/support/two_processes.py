# SPDX-License-Identifier: MIT
"""A script in two processes that find each other as torchrun's do. They are forks of the test's: nothing is imported
again."""

from __future__ import annotations

import os
import signal
import socket
import sys
import textwrap
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_LIMIT_S = 200


class Ended(NamedTuple):
    """How a process ended."""

    returncode: int
    stdout: str
    stderr: str


def forget_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what torchrun tells a process out of this one's environment."""
    for name in PLACE:
        monkeypatch.delenv(name, raising=False)


def run_in_two(script: str, folder: Path) -> None:
    """Run `script` as ranks 0 and 1 with a thread each, and `folder` as its argument; both have to end well."""
    ended = together(script, folder)
    assert [each.returncode for each in ended] == [0, 0], "\n".join(each.stderr[-3000:] for each in ended)


def together(script: str, folder: Path) -> list[Ended]:
    """Run `script` as ranks 0 and 1, and return how they ended."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a fork has no threads of torch's
    children = []
    for rank in ("0", "1"):
        children.append(os.fork())
        if not children[-1]:
            _child(script, folder, {**place, "RANK": rank, "LOCAL_RANK": rank})
    torch.set_num_threads(threads)
    # Who is done stops, until all are: one that is gone already would be missed by one that still connects.
    statuses = [os.waitpid(child, os.WUNTRACED)[1] for child in children]
    for rank, (child, status) in enumerate(zip(children, statuses, strict=True)):
        if os.WIFSTOPPED(status):
            os.kill(child, signal.SIGCONT)
            statuses[rank] = os.waitpid(child, 0)[1]
    return [
        Ended(
            os.waitstatus_to_exitcode(status),
            *((folder / f"{name}{rank}").read_text() for name in ("stdout", "stderr")),
        )
        for rank, status in enumerate(statuses)
    ]


def _child(script: str, folder: Path, place: Mapping[str, str]) -> None:
    """Run the script and end, whatever comes: by `os._exit`, for torch aborts now and then at the end of a process that
    used gloo."""
    status = 1
    try:
        signal.alarm(_LIMIT_S)
        os.environ.update(place)
        for number, name in enumerate(("stdout", "stderr"), 1):
            os.dup2(os.open(folder / f"{name}{place['RANK']}", os.O_WRONLY | os.O_CREAT), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w") for number in (1, 2))
        sys.argv = ["script", str(folder)]
        warnings.simplefilter("ignore")
        exec(compile(textwrap.dedent(script), "<script>", "exec"), {"__name__": "__main__"})
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(status)
