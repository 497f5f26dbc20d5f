# SPDX-License-Identifier: MIT
import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from dnnsuite._runs.monitor import Cores
from dnnsuite.workflow import launch
from dnnsuite.workflow.launch import MAX_PROCESSES, Launcher, Point, hyperparameters, replica_directories
from dnnsuite.workflow.settings import WorkflowSettings, resolve

CORES = Cores((0, 1, 2, 3), 4, 0.0)


@pytest.fixture
def settings(toys: None) -> WorkflowSettings:
    return resolve("toy", {"threads": 4, "seed": 3})


def test_a_model_is_the_same_whatever_B(settings: WorkflowSettings) -> None:
    few, many = hyperparameters("toy", 3, 2), hyperparameters("toy", 3, 6)
    assert many["lr"][:2] == few["lr"]
    assert len(set(many["lr"])) == 6
    assert hyperparameters("toy", 4, 2) != few


def test_fused_and_separate_models_are_the_same_ones(settings: WorkflowSettings) -> None:
    launcher = Launcher(settings, CORES)
    (fused,) = launcher.configs(Point("hfta", "fp32", 3), repeat=1)
    separate = launcher.configs(Point("concurrent", "fp32", 3), repeat=1)
    (serial,) = launcher.configs(Point("serial", "fp32", 1), repeat=1)
    assert (fused.B, fused.threads) == (3, 4)
    assert [config.B for config in separate] == [0, 0, 0]
    assert [config.threads for config in separate] == [1, 1, 1]
    assert [config.seed for config in separate] == [fused.seed + i for i in range(3)]
    assert [config.hyper["lr"][0] for config in separate] == fused.hyper["lr"]
    assert serial == replace(separate[0], threads=4)


def test_repeats_start_from_other_seeds(settings: WorkflowSettings) -> None:
    launcher, point = Launcher(settings, CORES), Point("hfta", "fp32", 1000)
    seeds = [launcher.configs(point, repeat)[0].seed for repeat in range(3)]
    assert min(b - a for a, b in itertools.pairwise(seeds)) > 1000


def test_threads_reach_the_libraries(settings: WorkflowSettings) -> None:
    assert Launcher(settings, CORES).environment(Point("concurrent", "fp32", 2))["OMP_NUM_THREADS"] == "2"


def test_replicas_have_directories_of_their_own(tmp_path: Path) -> None:
    assert replica_directories(tmp_path, 1) == [tmp_path]
    assert replica_directories(tmp_path, 2) == [tmp_path / "idx0", tmp_path / "idx1"]


@pytest.mark.parametrize(
    ("B", "share", "words"),
    [(MAX_PROCESSES + 1, 1 << 40, "more than the 1024 allowed"), (100, 10 << 20, "100 processes would have 10 MiB")],
)
def test_too_many_are_not_started(
    B: int, share: int, words: str, settings: WorkflowSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "memory_share_bytes", lambda replicas: share)
    outcome = Launcher(settings, CORES).run("rate", Point("concurrent", "fp32", B), tmp_path)
    assert outcome.verdict.failure == "oom"
    assert words in outcome.verdict.message
    assert list(tmp_path.iterdir()) == []


def test_threads_are_no_more_than_neighbours_leave_free_and_wait_passively_then(settings: WorkflowSettings) -> None:
    beside = Launcher(settings, Cores((1, 3), 4, 2.0))
    point = Point("hfta", "fp32", 3)
    assert beside.threads("hfta", 3) == 2
    assert beside.environment(point)["OMP_WAIT_POLICY"] == "passive"
    assert "OMP_WAIT_POLICY" not in Launcher(settings, CORES).environment(point)
    crowd = Launcher(settings, CORES).environment(Point("concurrent", "fp32", 8))  # of a thread each, on four cores
    assert (crowd["OMP_NUM_THREADS"], crowd["OMP_WAIT_POLICY"]) == ("1", "passive")
