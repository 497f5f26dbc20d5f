# SPDX-License-Identifier: MIT
"""A script in two processes that find each other as torchrun's do."""

from __future__ import annotations

import socket
import textwrap
from pathlib import Path

import pytest

import forked_program

PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def forget_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what torchrun tells a process out of this one's environment."""
    for name in PLACE:
        monkeypatch.delenv(name, raising=False)


def run_in_two(script: str, folder: Path) -> None:
    """Run `script` as ranks 0 and 1 with a thread each, and `folder` as its argument; both have to end well."""
    for done in together(script, folder):
        assert done.returncode == 0, done.stderr[-3000:]


def together(script: str, folder: Path) -> list[forked_program.Ended]:
    """Run `script` as ranks 0 and 1, and return how they ended.

    Scripts end by `os._exit`: torch aborts now and then when a process that used gloo exits.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    places = [{**shared, "RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")]
    return forked_program.run_together(_BEGIN + textwrap.dedent(script) + _END, places, str(folder))


_BEGIN = f"""
import sys as _sys
import torch as _torch
_sys.path.insert(0, {str(Path(__file__).parent)!r})
_torch.set_num_threads(1)
"""
_END = """
import os as _os
_sys.stdout.flush()
_os._exit(0)
"""
