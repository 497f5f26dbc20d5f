# SPDX-License-Identifier: MIT
"""`dnnsuite train --cluster`: one run over processes of several nodes; one that dies ends the rest."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import slurm_machine
from command_line import status
from dnnsuite._runs.reading import read_run
from dnnsuite.cli.on_cluster import Nodes, TrainingOnCluster
from dnnsuite.errors import InvalidArgument
from dnnsuite.training import read_metrics

TINY = (
    "width=1", "max_iters_per_epoch=2", "batch_size=4", "max_valid_samples=3", "data=synthetic", "log_to_tensorboard=0"
)  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if slurm_machine.missing():
        pytest.skip(slurm_machine.missing())
    (tmp_path / "slurm").mkdir()
    with slurm_machine.slurm(tmp_path / "slurm") as variables:
        for name, value in {**variables, "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}.items():
            monkeypatch.setenv(name, value)
        yield


def test_a_process_that_dies_ends_the_rest_and_the_run_goes_on(cluster, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["train", "--preset", "quick", "--config", "bs128", *TINY, "--quiet", "--nodes", "2"]
    words += ["--cluster-option", "timeout_min=5", "--out", str(out)]
    command = [sys.executable, "-m", "dnnsuite", *words]
    first = subprocess.Popen([*command, "max_epochs=500"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        kept = out / "bs128" / "checkpoint.pt"
        _until(kept.is_file, first)
        os.kill(_process_of(1), signal.SIGKILL)
        said, _ = first.communicate(timeout=120)
    finally:
        first.kill()
        subprocess.run(["scancel", "--user=root"], check=False)
    assert first.returncode == 1, said
    assert f"bs128: a process ended early; the last checkpoint is {kept}; continue with --resume auto" in said
    reached = len(read_metrics(kept.parent))
    done = subprocess.run(
        [*command, f"max_epochs={reached + 1}", "--resume", "auto"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    record = read_run(out / "bs128" / "run.json")
    assert (record.processes, record.mode, record.details["epochs"]) == (2, "ddp", reached + 1)
    assert f"{reached + 1} epochs on 2 processes" in done.stdout


def _process_of(rank: int) -> int:
    """The training process of a rank, which its environment tells."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            environment = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"train" in words and b"--out" in words and f"SLURM_PROCID={rank}".encode() in environment:
            return int(path.name)
    raise AssertionError(f"no process of rank {rank}")


def _until(ready: Callable[[], bool], process: subprocess.Popen[str], limit_s: float = 120.0) -> None:
    end_s = time.monotonic() + limit_s
    while not ready():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end_s
        time.sleep(0.1)


def test_what_a_run_gets_of_a_cluster() -> None:
    nodes = Nodes(count=2, gpus=8, options={"slurm_partition": "gpu"})
    assert nodes.processes == 16
    assert nodes.parameters == {
        "nodes": 2, "tasks_per_node": 8, "gpus_per_node": 8, "slurm_srun_args": ["--kill-on-bad-exit=1"],
        "slurm_partition": "gpu",
    }  # fmt: skip
    assert Nodes(count=3, options={"tasks_per_node": 2}).processes == 6
    with pytest.raises(InvalidArgument, match="--nodes 0: must be at least 1"):
        _ = Nodes(count=0).parameters


def test_a_task_gets_the_command_without_what_is_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[TrainingOnCluster] = []
    monkeypatch.setattr("dnnsuite.cli.on_cluster.run_parts", lambda plan, *rest: seen.append(plan) or True)
    arguments = ["--config", "bs256", "--preset", "quick", "lr=0.2", "--quiet", "--nodes", "2", "--out", str(tmp_path)]
    assert status("train", *arguments) == 0
    (part,) = seen[0].parts
    assert part.order["arguments"] == [
        "lr=0.2",
        "--config",
        "bs256",
        "--preset",
        "quick",
        "--device",
        "auto",
        "--quiet",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes", "3"], "batch_size is 4, which cannot be divided among 3 processes: use 3"),
        (["--cluster", "pbs"], "unknown cluster 'pbs'; accepted: slurm, local, debug"),
        (["--nodes", "2", "widht=3"], "unknown key 'widht'"),
        (["--cluster", "local", "--cluster-option", "x"], "--cluster-option x: expected NAME=VALUE"),
        (["--gpus-per-node", "-1"], "--gpus-per-node -1: must be at least 0"),
    ],
)
def test_usage_errors(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("train", "--preset", "quick", *TINY, "--out", str(tmp_path / "out"), *arguments) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
