# SPDX-License-Identifier: MIT
import json
import os
import sys
from pathlib import Path

import pytest

from dnnsuite.cli.app import main
from pin_machines import machine

TOPOLOGY = machine(nodes=2, cores=28, smt=2, gpu_nodes=(0, 0, 0, 0, 1, 1, 1, 1))


@pytest.fixture(autouse=True)
def own_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DNNSUITE_CGROUP_PARENT", f"/dnnsuite-ci-{os.getpid()}")


def status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["pin", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_recorded_machine_is_planned_anywhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "node.json").write_text(json.dumps({"topology": TOPOLOGY.to_dict()}))
    assert status("plan", "--topology", str(tmp_path / "node.json")) == 0
    said = capfd.readouterr().out
    assert ["student0", "7", "14", "0-6,56-62", "0", "7.60", "GPU-0"] in [line.split() for line in said.splitlines()]
    assert "comparable: yes   plan 22d1d494d60162a5" in said
    assert status("plan", "--topology", str(tmp_path / "node.json"), "--slots", "9", "--json") == 0
    assert json.loads(capfd.readouterr().out)["comparable"] is False


def test_plans_that_cannot_be(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "node.json").write_text(json.dumps(TOPOLOGY.to_dict()))
    for arguments, words in (
        (["--slots", "57"], "57 shares of 56 whole cores"),
        (["--slots", "x"], "slots 'x'; accepted: gpus, or a number from 1"),
        (["--cpus", "0-200"], "CPUs 112-200 may not be used"),
        (["--reserve-memory", "65G"], "lower --reserve-memory"),
    ):
        assert status("plan", "--topology", str(tmp_path / "node.json"), *arguments) == 2
        assert words in capfd.readouterr().err


def test_probe_is_a_recording(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert status("probe", "--json") == 0
    text = capfd.readouterr().out
    assert json.loads(text)["pinning"]["level"] in ("cgroup", "affinity")
    (tmp_path / "probe.json").write_text(text)
    assert status("plan", "--slots", "1", "--allow-smt-split", "--topology", str(tmp_path / "probe.json")) == 0
    assert status("probe") == 0
    assert "pinning: " in capfd.readouterr().out


ONE = ["--slots", "1", "--allow-smt-split"]


def test_exec_has_the_commands_own_status(capfd: pytest.CaptureFixture[str]) -> None:
    assert status("exec", *ONE, "--", "sh", "-c", "echo $DNNSUITE_SLOT; exit 7") == 7
    assert capfd.readouterr().out == "student0\n"
    assert status("exec", *ONE, "--", "sh", "-c", "kill -TERM $$") == 143
    assert status("exec", *ONE, "--", "nonesuch-program") == 125
    assert "execute nonesuch-program" in capfd.readouterr().err
    assert status("exec", *ONE, "--backend", "affinity", "--require", "cgroup", "--", "true") == 125
    assert "cgroup is required" in capfd.readouterr().err


def test_exec_tells_what_memory_killed(capfd: pytest.CaptureFixture[str]) -> None:
    code = status("exec", *ONE, "--memory", "64M", "--", sys.executable, "-c", "b = bytearray(200 << 20)")
    assert code in (137, 1)  # without groups it is a MemoryError
    assert ("oom_killed" in capfd.readouterr().err) is (code == 137)


def test_run_in_every_share(capfd: pytest.CaptureFixture[str]) -> None:
    number = str(len(os.sched_getaffinity(0)))
    assert status("run", "--slots", number, "--allow-smt-split", "--json", "--", "sh", "-c", "exit 0{slot}") == int(
        number != "1"
    )
    outcomes = json.loads(capfd.readouterr().out)["outcomes"]
    assert [outcome["returncode"] for outcome in outcomes.values()] == list(range(int(number)))
    assert status("run", "--slots", "1", "--allow-smt-split", "--timeout", "0.2", "--", "sleep", "100") == 1
    assert "timed out" in capfd.readouterr().out


def test_ls_and_clean(capfd: pytest.CaptureFixture[str]) -> None:
    assert status("ls", "--json") == 0
    assert "groups" in json.loads(capfd.readouterr().out)
    assert status("ls") == 0
    capfd.readouterr()
    assert status("--help") == 0
    said = capfd.readouterr().out
    assert all(name in said for name in ("probe", "plan", "exec", "run", "ls", "clean"))
