# SPDX-License-Identifier: MIT
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from children import assert_ends, children
from dnnsuite import host
from dnnsuite._files import OutputError
from dnnsuite._runs.group import Direct, GroupOutcome, InShares, OnFailure
from dnnsuite._runs.spec import WorkerSpec
from dnnsuite._runs.turn_workers import run_group
from dnnsuite.errors import Error
from dnnsuite.pin import Partition, Topology, make_plan
from waiting import text_of

SpecOf = Callable[..., WorkerSpec]
GIB = 1 << 30
pytestmark = pytest.mark.usefixtures("real_workers")


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert children() == []


def run(*specs: WorkerSpec, timeout_s: float = 280.0, on_failure: OnFailure = "end", **options: object) -> GroupOutcome:
    return run_group(specs, [{}] * len(specs), timeout_s, Direct(GIB), on_failure, **options)  # type: ignore[arg-type]


def pid_in(path: Path) -> int:
    return int(text_of(path))


def test_all_begin_when_the_last_is_set_up(spec_of: SpecOf) -> None:
    outcome = run(spec_of("fine", "0"), spec_of("fine", "1", setup_s=0.7), spec_of("fine", "2", seconds=0.1))
    assert outcome.ok
    ready, began = ([result[when] for result in outcome.results] for when in ("ready_ns", "began_ns"))
    assert max(ready) <= min(began)
    assert [worker.verdict.status for worker in outcome.workers] == ["ok"] * 3
    assert all(result["process"]["peak_rss_bytes"] > 1 << 20 for result in outcome.results)
    assert all(result["process"]["cpu_s"] > 0 for result in outcome.results)


def test_the_first_that_fails_ends_the_others(spec_of: SpecOf) -> None:
    outcome = run(spec_of("slow", "0"), spec_of("crashes", "1"))
    assert outcome.verdict.failure == "crash"
    assert outcome.verdict.message == "replica 1: no second step"


def test_or_leaves_them_alone(spec_of: SpecOf) -> None:
    outcome = run(spec_of("crashes_at_once", "0"), spec_of("fine", "1", seconds=0.5), on_failure="continue")
    assert [worker.verdict.failure for worker in outcome.workers] == ["unavailable", None]
    assert outcome.results[1]["ended_ns"] > outcome.results[1]["began_ns"]
    assert outcome.verdict.failure == "unavailable"


def test_time_that_is_over_ends_all(spec_of: SpecOf) -> None:
    outcome = run(spec_of("slow", "0"), spec_of("stubborn", "1"), timeout_s=8.0)  # they sleep for ten minutes
    assert outcome.verdict.failure == "timeout"
    assert outcome.verdict.message.startswith("not finished after")


def test_time_that_is_over_is_the_verdict_of_those_that_still_ran(spec_of: SpecOf) -> None:
    for timeout_s in (8.0, 32.0, 128.0):  # on a busy machine the second has not begun after the first of them
        outcome = run(spec_of("slow", "0"), spec_of("fine", "1"), timeout_s=timeout_s, on_failure="continue")
        assert outcome.workers[0].verdict.failure == "timeout"
        if outcome.workers[1].verdict.failure is None:
            return
    raise AssertionError(outcome.workers[1].verdict)


def test_a_worker_that_was_killed_is_the_cause(spec_of: SpecOf, tmp_path: Path) -> None:
    killer = threading.Thread(target=lambda: os.kill(pid_in(tmp_path / "1" / "marker"), signal.SIGKILL))
    specs = [spec_of("slow", "0"), spec_of("slow", "1")]
    killer.start()
    outcome = run(*specs)
    killer.join()
    assert outcome.verdict.failure == "killed"
    assert outcome.verdict.message.startswith("replica 1: the worker was ended by SIGKILL")


def killed_by_the_kernel(
    spec_of: SpecOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed_bytes: int
) -> GroupOutcome:
    """A worker killed while the kernel's counter of out-of-memory kills rises."""
    kills = [0]

    def kill() -> None:
        pid = pid_in(tmp_path / "0" / "marker")
        kills[0] += 1
        os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(host, "oom_kills", lambda: kills[0])
    killer = threading.Thread(target=kill)
    killer.start()
    outcome = run_group([spec_of("slow")], [{}], 60.0, Direct(allowed_bytes))
    killer.join()
    return outcome


def test_memory_that_others_took_is_no_finding_about_the_worker(
    spec_of: SpecOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = killed_by_the_kernel(spec_of, tmp_path, monkeypatch, 64 * GIB)
    assert outcome.verdict.failure == "contaminated"
    assert "for memory that others took: it had" in outcome.verdict.message


def test_memory_that_the_worker_took_is_one(spec_of: SpecOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = killed_by_the_kernel(spec_of, tmp_path, monkeypatch, 1 << 20)
    assert outcome.verdict.failure == "oom"


def test_a_worker_without_a_result_crashed(spec_of: SpecOf) -> None:
    outcome = run(spec_of("ends_early"), on_failure="continue")
    assert outcome.verdict.failure == "crash"
    assert "ended early, with status 0 and no result" in outcome.verdict.message


def test_children_of_workers_end_with_them(spec_of: SpecOf) -> None:
    outcome = run(spec_of("leaves_a_child"))
    assert outcome.ok
    assert_ends(outcome.results[0]["child"])


def test_an_exception_while_waiting_ends_all(spec_of: SpecOf) -> None:
    def tick() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(spec_of("slow", "0"), spec_of("slow", "1"), tick=tick)


def test_a_folder_that_is_none_is_an_output_error(spec_of: SpecOf, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        run(replace(spec_of("fine"), directory=str(tmp_path / "file")))


def test_a_worker_that_cannot_start_ends_those_that_did(spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch) -> None:
    class Second(Direct):
        def start(self, index: int, *arguments: object) -> object:  # type: ignore[override]
            if index:
                raise OSError("no more processes")
            return super().start(index, *arguments)  # type: ignore[arg-type]

    with pytest.raises(Error, match="cannot start a worker: no more processes"):
        run_group([spec_of("slow", "0"), spec_of("slow", "1")], [{}, {}], 60.0, Second())


def test_workers_know_nothing_of_the_place_of_this_process(spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    (result,) = run(spec_of("fine")).results
    assert result["place"] is None


def test_workers_run_in_shares(spec_of: SpecOf) -> None:
    plan = make_plan(Topology.read(), 1)
    with Partition(plan, "affinity") as partition:
        starter = InShares(partition, [0, "all"])
        specs = [spec_of("fine", "0"), spec_of("slow", "1")]
        outcome = run_group(specs, [{}, {}], 12.0, starter, "continue")
    fine, slow = outcome.workers
    assert (fine.verdict.failure, slow.verdict.failure) == (None, "timeout")
    assert fine.held["level"] == "affinity"
    assert fine.seconds < slow.seconds
