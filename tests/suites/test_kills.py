# SPDX-License-Identifier: MIT
"""Suites killed at random moments. `DNNSUITE_KILLS=100` for as many; each is one suite of a few seconds."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from dnnsuite._files import TEMPORARY
from dnnsuite._runs.reading import read_run
from dnnsuite.pin import find
from dnnsuite.suites import SUITE_FILE
from waiting import wait_for

KILLS = int(os.environ.get("DNNSUITE_KILLS", "2"))
MARK = "DNNSUITE_TEST_KILL"
LONGEST_S = 12.0 if KILLS > 10 else 4.0


def of_mark(mark: str) -> list[int]:
    """Processes that have the mark in their environment, and are no zombies."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path("/proc", entry, "environ").read_bytes().split(b"\0")
            state = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in environment and state not in "ZX":
            found.append(int(entry))
    return found


def check_whole(out: Path) -> int:
    """Every record that has its name is complete; returns how many there are."""
    runs = [run for run in out.glob("runs/*") if not run.name.startswith(TEMPORARY)]
    for run in runs:
        assert read_run(run / "run.json").ok
        names = {path.name for path in run.iterdir()}
        assert names == {"run.json", "samples.csv", "monitor.csv", "report.json", "stdout.txt", "stderr.txt"}
    for path in out.glob(SUITE_FILE):
        json.loads(path.read_text())
    for path in out.glob("mila/*/[!.]*.json"):  # a list without its end, as the original writes
        json.loads(path.read_text().rstrip().removesuffix(",") + "]")
    return len(runs)


@pytest.mark.parametrize("kill", range(KILLS))
@pytest.mark.timeout(300)
def test_a_kill_leaves_nothing(kill: int, toys: None, tmp_path: Path) -> None:
    generator = random.Random(os.urandom(8))
    number = generator.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    delay_s, mark = generator.uniform(0.0, LONGEST_S), uuid.uuid4().hex
    (tmp_path / "toys.json").write_text(
        json.dumps([{"name": "toy-nap", "args": {"--repeat": 20}}, {"name": "toy-all"}])
    )
    command = [sys.executable, "-m", "dnnsuite", "run", "toys.json", "--plugin", "suite_toys", "--device", "cpu",
               "--copies", "2", "--repeat", "3", "--out", "out"]  # fmt: skip
    with open(tmp_path / "said", "w") as said:
        process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, MARK: mark}, stdout=said, stderr=said)
        time.sleep(delay_s)
        process.send_signal(number)
        status = process.wait()
    told = f"{number.name} after {delay_s:.3f} s, status {status}: {(tmp_path / 'said').read_text()}"
    wait_for(lambda: not of_mark(mark))  # the guard ends what was left behind
    assert [left for left in find() if left.owner == process.pid] == [], told
    check_whole(tmp_path / "out")
    if kill == KILLS - 1 and (tmp_path / "out" / SUITE_FILE).exists():
        subprocess.run([*command, "--resume"], cwd=tmp_path, check=True, capture_output=True)
        assert check_whole(tmp_path / "out") == 3 * (2 + 1)
