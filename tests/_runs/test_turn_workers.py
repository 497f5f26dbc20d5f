# SPDX-License-Identifier: MIT
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dnnsuite._runs.group import Direct
from dnnsuite._runs.spec import WorkerSpec
from dnnsuite._runs.turn_workers import TurnWorkers

HERE = str(Path(__file__).parent)
LAST: Mapping[str, Any] = {"add": 0}


def specs(folder: Path, task: str, count: int, **details: Any) -> list[WorkerSpec]:
    made = []
    for index in range(count):
        (own := folder / f"{task}{index}").mkdir(parents=True)
        made.append(WorkerSpec(f"worker_tasks:{task}", str(own), "none", {}, {**details, "index": index}, (), (HERE,)))
    return made


def start(workers: TurnWorkers[str], folder: Path, key: str, task: str, count: int = 1, **details: Any) -> None:
    variables = [{"PYTHONPATH": os.pathsep.join([HERE, *sys.path])}] * count
    workers.start(key, specs(folder, task, count, **details), variables, Direct())


def test_ways_take_turns_and_end_with_their_results(tmp_path: Path) -> None:
    with TurnWorkers[str](280) as workers:
        start(workers, tmp_path, "pair", "counts", 2)
        start(workers, tmp_path, "one", "counts_down")
        assert workers.set_up() == ["pair", "one"]
        assert [answer["total"] for answer in workers.turn("pair", {"add": 3}) or []] == [3, 3]
        assert [answer["total"] for answer in workers.turn("one", {"add": 1}) or []] == [-1]
        assert [answer["total"] for answer in workers.turn("pair", {"add": 4}) or []] == [7, 7]
        outcomes = workers.end({"pair": LAST, "one": LAST})
    assert {key: outcome.ok for key, outcome in outcomes.items()} == {"pair": True, "one": True}
    assert [result["total"] for result in outcomes["pair"].results] == [7, 7]


def test_waiting_for_a_turn_uses_no_cpu(tmp_path: Path) -> None:
    with TurnWorkers[str](280) as workers:
        start(workers, tmp_path, "waits", "counts")
        workers.set_up()
        (before,) = workers.turn("waits", {"add": 1}) or [{}]
        time.sleep(1.0)
        (after,) = workers.turn("waits", {"add": 1}) or [{}]
        workers.end({"waits": LAST})
    assert after["cpu_s"] - before["cpu_s"] < 0.05


@pytest.mark.parametrize(
    ("task", "failure"), [("crashes_at_once", "unavailable"), ("fails_in_its_turn", "crash"), ("leaves", "crash")]
)
def test_a_way_that_fails_leaves_the_others_alone(task: str, failure: str, tmp_path: Path) -> None:
    with TurnWorkers[str](280) as workers:
        start(workers, tmp_path, "good", "counts")
        start(workers, tmp_path, "bad", task, 2)
        workers.set_up()
        assert workers.turn("bad", {"add": 1}) is None
        assert workers.turn("good", {"add": 1}) is not None
        outcomes = workers.end({"good": LAST, "bad": LAST})
    assert outcomes["good"].ok
    assert outcomes["bad"].verdict.failure == failure


def test_a_turn_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    for timeout_s in (5, 20, 80):  # on a busy machine it is not set up after the first of them
        with TurnWorkers[str](timeout_s) as workers:
            start(workers, tmp_path / str(timeout_s), "slow", "sleeps_in_its_turn")
            if workers.set_up() != ["slow"]:
                continue
            assert workers.turn("slow", {"add": 1}) is None
            assert workers.end({})["slow"].verdict.failure == "timeout"
            return
    raise AssertionError("it was never set up")


def test_an_error_in_the_parent_leaves_no_worker(tmp_path: Path) -> None:
    pids: list[int] = []

    def fails() -> None:
        with TurnWorkers[str](60, started=pids.append) as workers:
            start(workers, tmp_path, "good", "counts")
            workers.set_up()
            raise LookupError

    with pytest.raises(LookupError):
        fails()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
