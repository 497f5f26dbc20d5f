# SPDX-License-Identifier: MIT
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
import pytest

from dnnsuite._runs.monitor import MonitorColumn
from dnnsuite.errors import InvalidArgument, Unavailable
from dnnsuite.profiler.monitor import Monitor, WorkersReader, check_monitor
from waiting import wait_for

# It begins with a line of its input, says when it has done, and stays until its input ends.
SPIN = """
import sys, time
sys.stdin.readline()
end = time.process_time() + 0.4
while time.process_time() < end: pass
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def spinning() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose child uses 0.4 s of CPU."""
    parent = "import subprocess, sys\nsubprocess.run([sys.executable, *sys.argv[1:]])"
    with subprocess.Popen(
        [sys.executable, "-c", parent, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process


def test_a_run_has_its_samples(tmp_path: Path) -> None:
    with Monitor(gpus=False) as monitor:
        began_ns, before = time.monotonic_ns(), len(monitor.log)
        wait_for(lambda: len(monitor.log) >= before + 7)  # one of them may have been under way
        ended_ns = time.monotonic_ns()
    monitor.write(tmp_path)
    table = pd.read_csv(tmp_path / "monitor.csv")
    inside = table[(table["time_ns"] >= began_ns) & (table["time_ns"] <= ended_ns)]
    assert len(inside) >= 6
    assert inside["machine.busy_pct"].dropna().between(0, 100).all()
    total = table["machine.memory_used_bytes"] + table["machine.memory_available_bytes"]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert total.iloc[0] == pytest.approx(pages, rel=0.02)
    record = monitor.record()
    assert (record["sources"], record["samples"]) == (["machine"], len(table))
    assert 0 < record["cpu_pct"] < 20


def test_workers_and_their_children_are_counted(spinning: subprocess.Popen[bytes]) -> None:
    reader = WorkersReader()
    reader.follow(spinning.pid)
    reader.follow(2**22 + 1)  # no such process
    last_ns = time.monotonic_ns()
    list(reader.read(last_ns))
    used_s = resident = 0.0
    assert spinning.stdin is not None
    spinning.stdin.write(b"begin\n")
    spinning.stdin.flush()
    done = False
    while not done:
        done = bool(select.select([spinning.stdout], [], [], 0.02)[0])
        before_ns, last_ns = last_ns, time.monotonic_ns()
        found = {reading.name: reading.value for reading in reader.read(last_ns)}
        used_s += found.get("cpu", 0.0) / 100 * (last_ns - before_ns) * 1e-9
        resident = max(resident, found["resident"])
    parent = psutil.Process(spinning.pid)
    whole = [each.cpu_times() for each in (parent, *parent.children())]
    assert 0.4 <= used_s <= sum(each.user + each.system for each in whole) + 0.05  # in ticks
    assert resident > 1 << 22


def test_the_thread_stays_on_its_cpus() -> None:
    (cpu, *_) = os.sched_getaffinity(0)
    with Monitor(cpus={cpu}, gpus=False):
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "dnnsuite-monitor"]
        wait_for(lambda: thread.native_id is not None and os.sched_getaffinity(thread.native_id) == {cpu})
    assert cpu in os.sched_getaffinity(0)


def test_none_observes_nothing(tmp_path: Path) -> None:
    with Monitor("none") as monitor:
        time.sleep(0.15)
    monitor.write(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert monitor.record()["samples"] == 0


def test_only_the_gpus_of_a_run_are_written(tmp_path: Path) -> None:
    monitor = Monitor("none")
    columns = [MonitorColumn(device, "power", "W") for device in ("gpu0", "gpu1", "gpu1/mig0", "package-0")]
    monitor.log.add(1, [(column, 1.0) for column in columns])
    monitor.write(tmp_path, [1])
    header = (tmp_path / "monitor.csv").read_text().splitlines()[0]
    assert header == "time_ns,gpu1.power_w,gpu1/mig0.power_w,package-0.power_w"


def test_a_source_that_was_asked_for_has_to_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidArgument, match="--monitor 'sar'; accepted: auto, nvml, dcgm, none"):
        check_monitor("sar")
    assert check_monitor("auto") == "auto"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(Unavailable, match="pip install nvidia-ml-py"):
        check_monitor("nvml")
    with Monitor() as monitor:  # not asked for: a remark
        pass
    assert "nvidia-ml-py" in monitor.record()["notes"][0]
