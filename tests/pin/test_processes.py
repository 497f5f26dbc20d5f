# SPDX-License-Identifier: MIT
import os
import subprocess
import time

import pytest

from dnnsuite.pin import _processes
from dnnsuite.pin._processes import RUN_VARIABLE, Members, end, of_run, resident_bytes


def test_a_run_is_known_by_its_variable_through_forks_and_sessions() -> None:
    name = f"test-{os.getpid()}"
    script = "setsid sleep 1000 & env -u DNNSUITE_PIN_RUN sleep 1000 & sleep 1000"
    with subprocess.Popen(["sh", "-c", script], env={**os.environ, RUN_VARIABLE: f"{name}/student0"}) as process:
        deadline = time.monotonic() + 20
        while len(of_run(name)) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(of_run(name)) == 4  # also the one whose variable was taken away: its parent has it
        assert of_run(f"{name}/student0") == of_run(name)
        assert of_run(f"{name}/student") == of_run(name[:-1]) == []
        assert resident_bytes(of_run(name)) > 0
        assert end(name) == []
    assert process.returncode == -9
    assert of_run(name) == []
    assert resident_bytes([process.pid]) == 0


def test_members_are_followed_without_searching_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    monkeypatch.setattr(_processes, "of_run", lambda name: searched.append(name) or [1])
    with subprocess.Popen(["sh", "-c", "sleep 1000 & (sleep 1000) & wait"], start_new_session=True) as process:
        members = Members("test", process.pid)
        deadline = time.monotonic() + 20
        while len(members.processes()) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        found = members.processes()
        assert process.pid in found
        assert len(found) >= 3
        assert searched == []
        os.killpg(process.pid, 9)
    clock = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: clock + 60)
    assert members.processes() == [1]  # what a search finds counts, from time to time
    assert searched == ["test"]
