# SPDX-License-Identifier: MIT
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from children import assert_ends
from dnnsuite._runs import limits


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_an_allocation_beyond_the_limit_fails_alone() -> None:
    said = python(
        "from dnnsuite._runs.limits import limit_memory\n"
        "limit_memory(256 << 20)\n"
        "small = bytearray(64 << 20)\n"
        "try: bytearray(512 << 20)\n"
        "except MemoryError: print('refused')\n"
    )
    assert said == "refused\n"


def test_no_limit_leaves_memory_alone() -> None:
    said = python(
        "import resource\nfrom dnnsuite._runs.limits import limit_memory\n"
        "before = resource.getrlimit(resource.RLIMIT_DATA)\n"
        "limit_memory(None)\nprint(resource.getrlimit(resource.RLIMIT_DATA) == before)\n"
    )
    assert said == "True\n"


def test_a_worker_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    child_file = tmp_path / "child"
    child = (
        "import os, time\nfrom pathlib import Path\nfrom dnnsuite._runs.limits import die_with_parent\n"
        f"die_with_parent(os.getppid())\nPath({str(child_file)!r}).write_text(str(os.getpid()))\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"]
    )
    while not (child_file.exists() and child_file.read_text()):
        time.sleep(0.02)
    pid = int(child_file.read_text())
    parent.kill()
    parent.wait()
    assert_ends(pid)


def test_a_parent_that_is_gone_is_noticed() -> None:
    said = python("from dnnsuite._runs.limits import die_with_parent\ndie_with_parent(1 << 22)")
    assert "the parent process 4194304 is gone" in said


def test_peak_is_measured() -> None:
    assert limits.peak_rss_bytes() > 10 << 20


def test_shares_of_memory_leave_some() -> None:
    one, four = limits.memory_share_bytes(1), limits.memory_share_bytes(4)
    assert 0 < one < psutil.virtual_memory().total
    assert 4 * four == pytest.approx(one, rel=0.2)
