# SPDX-License-Identifier: MIT
"""The phases with a launcher that starts nothing; with real processes they are in test_sweep.py."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dnnsuite._runs.folder import opened
from dnnsuite.errors import Unavailable
from dnnsuite.workflow import plan
from dnnsuite.workflow.launch import Point
from dnnsuite.workflow.phases import Workflow
from dnnsuite.workflow.processes import Outcome
from dnnsuite.workflow.progress import Progress
from dnnsuite.workflow.protocol import WORKFLOW_FILE
from dnnsuite.workflow.settings import resolve
from dnnsuite.workflow.sweep import _begin

Fate = Callable[[str, Point, int], Outcome]
Begin = Callable[..., tuple[Workflow, list[tuple[str, int, Point]]]]


def fails(failure: str) -> Outcome:
    return Outcome(failure, f"it was {failure}", [{"status": "failed"}], 0.1)


def fine(directory: Path) -> Outcome:
    (directory / "samples.csv").write_text(
        "i,epoch,t_start_ns,t_stop_ns,items\n0,0,0,1000000,4\n1,1,1000000,2000000,4\n"
    )
    equality = {"passed": True, "tolerance": 0.0, "max_relative_error": 0.0}
    return Outcome(None, "", [{"status": "ok", "asynchronous": False, "equality": equality}], 0.1)


@pytest.fixture
def begin(toys: None, tmp_path: Path) -> Iterator[Begin]:
    """A workflow of the toy in tmp_path/out whose launcher asks `fate` what becomes of a worker."""
    with opened(tmp_path / "out", WORKFLOW_FILE, resume=False) as record:

        def make(fate: Fate | None = None, **asked: Any) -> tuple[Workflow, list[tuple[str, int, Point]]]:
            settings = resolve("toy", {"plugins": ["toy_jobs"], **asked})
            if not record.state:
                _begin(record, settings)
            workflow = Workflow(record, settings, Progress(Console(file=io.StringIO())))
            asked_for = []

            def launch(
                kind: str, point: Point, directory: Path, repeat: int = 0, *_: Any, **__: Any
            ) -> Outcome:
                asked_for.append((kind, repeat, point))
                outcome = fate(kind, point, repeat) if fate else Outcome(None, "", [], 0.0)
                return outcome if not outcome.ok else fine(directory)

            workflow.launcher.run = launch  # type: ignore[method-assign]
            return workflow, asked_for

        yield make


def test_runs_are_interleaved_in_the_recorded_order(begin: Begin) -> None:
    workflow, asked_for = begin(repeats=2, seed=5, modes=["serial,hfta"], plan=["1,2,3"])
    assert workflow.execute().ok
    done = [(repeat, point) for kind, repeat, point in asked_for if kind == "run"]
    points = [Point("serial", "fp32", 1), *(Point("hfta", "fp32", B) for B in (1, 2, 3))]
    assert done == plan.interleave(points, 2, seed=5)
    assert [kind for kind, _, _ in asked_for][:1] == ["equality"]  # before any number


def test_a_mode_whose_first_model_crashes_fails_alone(begin: Begin) -> None:
    def fate(kind: str, point: Point, repeat: int) -> Outcome:
        return fails("crash") if kind == "dry-run" and point.mode == "hfta" else Outcome(None, "", [], 0.0)

    workflow, asked_for = begin(fate, modes=["serial,hfta"])
    report = workflow.execute()
    assert report.problems == ["hfta/fp32: hfta fp32 B=1 fails (crash): it was crash"]
    assert {point.mode for kind, _, point in asked_for if kind == "run"} == {"serial"}


def test_a_model_that_does_not_fit_at_all(begin: Begin) -> None:
    workflow, _ = begin(lambda kind, point, repeat: fails("oom"), modes=["hfta"])
    assert workflow.execute().problems == ["hfta/fp32: cannot fit a single model"]


def test_resume_repeats_accidents_but_not_findings(begin: Begin) -> None:
    fates = {1: "oom", 2: "killed", 3: "nan", 4: "timeout"}

    def fate(kind: str, point: Point, repeat: int) -> Outcome:
        return fails(fates[point.B]) if kind == "run" and point.B in fates else Outcome(None, "", [], 0.0)

    first, _ = begin(fate, modes=["hfta"], plan=["1,2,3,4,5"])
    assert len(first.execute().problems) == 4
    second, asked_for = begin(modes=["hfta"], plan=["1,2,3,4,5"])
    report = second.execute()
    assert sorted(point.B for kind, _, point in asked_for if kind == "run") == [2, 4]
    assert [problem.split(" (")[0] for problem in sorted(report.problems)] == [
        "hfta fp32 B=1 repeat 1: oom", "hfta fp32 B=3 repeat 1: nan",
    ]  # fmt: skip


def test_a_device_that_cannot_be_prepared_is_a_failed_run(begin: Begin) -> None:
    def fate(kind: str, point: Point, repeat: int) -> Outcome:
        raise Unavailable("the daemon is tired", "PATH", "wake it")

    workflow, _ = begin(fate, modes=["serial"])
    assert "the daemon is tired (looked in PATH); wake it" in workflow.execute().problems[0]


def test_an_equality_check_without_a_verdict_withholds_too(begin: Begin) -> None:
    def fate(kind: str, point: Point, repeat: int) -> Outcome:
        return fails("crash") if kind == "equality" else Outcome(None, "", [], 0.0)

    workflow, asked_for = begin(fate, modes=["hfta"], plan=["2"])
    assert "equality check failed (crash: it was crash)" in workflow.execute().problems[0]
    assert [kind for kind, _, _ in asked_for] == ["equality"]
    again, asked_again = begin(modes=["hfta"], plan=["2"])  # asked again when resumed
    assert again.execute().ok
    assert [kind for kind, _, _ in asked_again] == ["equality", "run"]
