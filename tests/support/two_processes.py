# SPDX-License-Identifier: MIT
"""A script in two processes under torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def forget_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what torchrun tells a process out of this one's environment."""
    for name in PLACE:
        monkeypatch.delenv(name, raising=False)


def run_in_two(script: str, folder: Path) -> None:
    """Run `script` as ranks 0 and 1, with `folder` as its argument; each has to leave `RANK.done` there.

    Scripts end by `os._exit`: torch aborts now and then when a process that used gloo exits.
    """
    (folder / "worker.py").write_text(textwrap.dedent(script) + _END)
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {key: value for key, value in os.environ.items() if key not in PLACE}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(folder / "worker.py"), str(folder)],
        env={**environment, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert all((folder / f"{rank}.done").exists() for rank in range(2)), done.stderr[-3000:]


_END = """
import os as _os
open(f"{_os.path.dirname(_os.path.abspath(__file__))}/{_os.environ['RANK']}.done", "w").close()
_os._exit(0)
"""
