# SPDX-License-Identifier: MIT
"""The phases with a launcher whose workers have a fate instead of a job."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dnnsuite._runs.folder import WORKFLOW_FILE, opened
from dnnsuite._runs.group import Direct, GroupOutcome, WorkerOutcome
from dnnsuite._runs.progress import Progress
from dnnsuite._runs.record import Verdict
from dnnsuite._runs.spec import WorkerSpec
from dnnsuite._runs.turn_workers import TurnWorkers
from dnnsuite.errors import Unavailable
from dnnsuite.workflow import modes
from dnnsuite.workflow.launch import Point
from dnnsuite.workflow.phases import Workflow
from dnnsuite.workflow.settings import resolve
from dnnsuite.workflow.sweep import begin as begin_workflow

HERE = str(Path(__file__).parent)
Fate = Callable[[str, Point, int], GroupOutcome]
Begin = Callable[..., tuple[Workflow, list[tuple[str, int, Point]]]]


def fails(failure: str) -> GroupOutcome:
    return GroupOutcome.not_started(failure, f"it was {failure}", 0.1)


FINE = GroupOutcome(Verdict.good())


def fine() -> GroupOutcome:
    equality = {"passed": True, "tolerance": 0.0, "max_relative_error": 0.0}
    result = {"status": "ok", "equality": equality}
    return GroupOutcome(FINE.verdict, (WorkerOutcome(FINE.verdict, result, 0.1),), 0.1)


@pytest.fixture
def begin(toys: None, quiet: None, tmp_path: Path) -> Iterator[Begin]:
    """A workflow of the toy in tmp_path/out whose launcher asks `fate` what becomes of a worker."""
    with opened(tmp_path / "out", WORKFLOW_FILE, resume=False) as record:

        def make(fate: Fate | None = None, **asked: Any) -> tuple[Workflow, list[tuple[str, int, Point]]]:
            settings = resolve("toy", {"plugins": ["toy_jobs"], **asked})
            if "settings" not in record.state:
                begin_workflow(record, settings, asked)
            workflow = Workflow(record, settings, Progress(Console(stderr=True, width=400)))
            asked_for = []

            def launch(kind: str, point: Point, directory: Path, repeat: int = 0, *_: Any, **__: Any) -> GroupOutcome:
                asked_for.append((kind, repeat, point))
                outcome = fate(kind, point, repeat) if fate else FINE
                return outcome if not outcome.ok else fine()

            def start(workers: TurnWorkers[Point], point: Point, directory: Path, repeat: int, *_: Any) -> None:
                asked_for.append(("rate", repeat, point))
                outcome = fate("rate", point, repeat) if fate else FINE
                task = f"toy_jobs:{'takes_turns' if outcome.ok else outcome.verdict.failure}"
                spec = WorkerSpec(task, str(directory), "toy", {}, sys_path=(HERE,))
                workers.start(point, [spec], [{}], Direct())

            workflow.launcher.run = launch  # type: ignore[method-assign, assignment]
            workflow.launcher.start = start  # type: ignore[method-assign]
            return workflow, asked_for

        yield make


def test_points_of_a_repeat_take_turns_and_no_array_is_started_before_it_is_checked(begin: Begin) -> None:
    workflow, asked_for = begin(repeats=2, modes=["serial,hfta"], plan=["1,2,3"])
    assert workflow.execute().ok
    serial, *arrays = points = [Point("serial", "fp32", 1), *(Point("hfta", "fp32", B) for B in (1, 2, 3))]
    assert asked_for == [
        ("rate", 0, serial), ("equality", 0, Point("hfta", "fp32", 3)), *(("rate", 0, each) for each in arrays),
        *(("rate", 1, each) for each in points),
    ]  # fmt: skip
    together = {tuple(run.record.details["together"]) for run in workflow.record.finished()[0]}
    assert together == {tuple(map(str, points))}


def test_points_that_find_no_memory_together_are_measured_with_the_baseline_and_then_alone(begin: Begin) -> None:
    started: list[Point] = []

    def fate(kind: str, point: Point, repeat: int) -> GroupOutcome:
        if kind != "rate":
            return FINE
        started.append(point)
        short = {4: 2, 8: 9}  # times that a point finds no memory
        return fails("oom") if started.count(point) <= short.get(point.B, 0) else FINE

    workflow, _ = begin(fate, modes=["serial,hfta"], plan=["2,4,8"])
    report = workflow.execute()
    assert [problem.split(" (")[0] for problem in report.problems] == ["hfta fp32 B=8 repeat 1: oom"]
    runs = {run.record.B: run.record for run in workflow.record.finished()[0]}
    assert sorted(runs) == [1, 2, 4, 8]
    assert runs[2].details["together"] == ["serial fp32 B=1", *(f"hfta fp32 B={B}" for B in (2, 4, 8))]
    assert runs[4].details["together"] == ["hfta fp32 B=4"]
    assert started.count(Point("hfta", "fp32", 8)) == 3
    assert len(list(workflow.record.runs.iterdir())) == 4  # nothing unfinished is left


def test_a_mode_whose_first_model_crashes_fails_alone(begin: Begin) -> None:
    def fate(kind: str, point: Point, repeat: int) -> GroupOutcome:
        return fails("crash") if kind == "dry_run" and point.mode == "hfta" else FINE

    workflow, asked_for = begin(fate, modes=["serial,hfta"])
    report = workflow.execute()
    assert report.problems == ["hfta/fp32: hfta fp32 B=1 fails (crash): it was crash"]
    assert {point.mode for kind, _, point in asked_for if kind == "rate"} == {"serial"}


def test_a_model_that_does_not_fit_at_all(begin: Begin) -> None:
    workflow, _ = begin(lambda kind, point, repeat: fails("oom"), modes=["hfta"])
    assert workflow.execute().problems == ["hfta/fp32: cannot fit a single model"]


def test_resume_repeats_accidents_but_not_findings(begin: Begin) -> None:
    fates = {5: "oom", 2: "killed", 3: "nan", 4: "data"}

    def fate(kind: str, point: Point, repeat: int) -> GroupOutcome:
        return fails(fates[point.B]) if kind == "rate" and point.B in fates else FINE

    first, _ = begin(fate, modes=["hfta"], plan=["1,2,3,4,5"])
    assert len(first.execute().problems) == 4
    second, asked_for = begin(modes=["hfta"], plan=["1,2,3,4,5"])
    report = second.execute()
    assert sorted(point.B for kind, _, point in asked_for if kind == "rate") == [2, 4]
    assert [problem.split(" (")[0] for problem in sorted(report.problems)] == [
        "hfta fp32 B=3 repeat 1: nan",
        "hfta fp32 B=5 repeat 1: oom",
    ]


def test_a_device_that_cannot_be_prepared_is_a_failed_run(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def tired(count: int) -> Iterator[list[dict[str, str]]]:
        raise Unavailable("the daemon is tired", "PATH", "wake it")
        yield []

    monkeypatch.setitem(modes.MODES["serial"].place, "cpu", tired)
    workflow, _ = begin(modes=["serial"])
    assert "the daemon is tired (looked in PATH); wake it" in workflow.execute().problems[0]


def test_an_equality_check_without_a_verdict_withholds_too(begin: Begin) -> None:
    def fate(kind: str, point: Point, repeat: int) -> GroupOutcome:
        return fails("crash") if kind == "equality" else FINE

    workflow, asked_for = begin(fate, modes=["hfta"], plan=["2"])
    assert "equality check failed (crash: it was crash)" in workflow.execute().problems[0]
    assert [kind for kind, _, _ in asked_for] == ["equality"]
    again, asked_again = begin(modes=["hfta"], plan=["2"])  # asked again when resumed
    assert again.execute().ok
    assert [kind for kind, _, _ in asked_again] == ["equality", "rate"]


def test_arrays_that_set_themselves_up_beside_a_check_which_they_fail_are_not_measured(begin: Begin) -> None:
    def fate(kind: str, point: Point, repeat: int) -> GroupOutcome:
        return fails("crash") if kind == "equality" else FINE

    workflow, asked_for = begin(fate, modes=["serial,concurrent,hfta"], plan=["2"], budget_s=2.0, repeats=1)
    assert "equality check failed" in workflow.execute().problems[0]
    plain = [Point("serial", "fp32", 1), Point("concurrent", "fp32", 2)]
    array = Point("hfta", "fp32", 2)
    assert asked_for == [*(("rate", 0, each) for each in plain), ("rate", 0, array), ("equality", 0, array)]
    assert {run.record.mode for run in workflow.record.finished()[0]} == {"serial", "concurrent"}
    assert len(list((workflow.record.root / "runs").iterdir())) == 2


def test_memory_that_others_took_does_not_decide_how_many_fit(begin: Begin) -> None:
    disturbed = [2]  # dry runs of B=2 that something else ends

    def fate(kind: str, point: Point, repeat: int) -> GroupOutcome:
        if kind == "dry_run" and point.B == 2 and disturbed[0]:
            disturbed[0] -= 1
            return fails("contaminated")
        return fails("oom") if point.B > 2 else FINE

    workflow, _ = begin(fate, modes=["hfta"], preset="paper")
    assert workflow.execute().ok
    assert workflow.state["Bs"] == {"hfta/fp32": [1, 2]}


def test_a_search_that_is_disturbed_again_and_again_is_made_anew_by_resume(begin: Begin) -> None:
    def fate(kind: str, point: Point, repeat: int) -> GroupOutcome:
        return fails("killed") if kind == "dry_run" and point.B == 2 else FINE

    first, _ = begin(fate, modes=["hfta"])
    assert first.execute().problems == ["hfta/fp32: hfta fp32 B=2 was ended 3 times (killed): it was killed"]
    assert first.state["Bs"] == {}
    second, _ = begin(modes=["hfta"])
    assert second.execute().ok
    assert second.state["Bs"] == {"hfta/fp32": [1, 2]}


def test_memory_that_ran_out_below_a_number_that_fits_is_tried_again(begin: Begin) -> None:
    def fate(kind: str, point: Point, repeat: int) -> GroupOutcome:
        return fails("oom") if kind == "rate" and point.B in (1, 3) else FINE

    first, _ = begin(fate, modes=["hfta"], plan=["1,2,3"])
    first.execute()
    second, asked_for = begin(modes=["hfta"], plan=["1,2,3"])
    second.execute()
    assert [point.B for kind, _, point in asked_for if kind == "rate"] == [1]


def test_a_damaged_record_is_named_and_its_run_made_again(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = begin(modes=["serial"], repeats=2)
    first.execute()
    damaged, _ = sorted(first.record.runs.iterdir())
    (damaged / "run.json").write_text('{"version": 2, "jo')
    second, asked_for = begin(modes=["serial"], repeats=2)
    second.run_all()
    assert len(asked_for) == 1
    assert f"skipped: {damaged}" in capsys.readouterr().err
