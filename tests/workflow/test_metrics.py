# SPDX-License-Identifier: MIT
import numpy as np
import pytest

from dnnsuite._runs.monitor import Cores
from dnnsuite._runs.rates import Steps
from dnnsuite._runs.record import Metric
from dnnsuite._runs.turn_session import Session, Turn
from dnnsuite._runs.turn_workers import TurnWorkers
from dnnsuite._runs.turns import Block, Goal
from dnnsuite.workflow import outputs
from dnnsuite.workflow.launch import Point

MS = 1_000_000
SERIAL, ARRAY = Point("serial", "fp32", 1), Point("hfta", "fp32", 4)
QUIET, BESIDE = Cores((0, 1), 2, 0.0), Cores((1,), 2, 1.0)


def steps(times_ms: list[float], items: int = 10, start_ms: float = 0) -> Steps:
    edges = np.rint((start_ms + np.concatenate([[0], np.cumsum(times_ms)])) * MS).astype(np.int64)
    n = len(times_ms)
    return Steps(edges[:-1], edges[1:], np.full(n, items, np.int64), np.zeros(n, np.int64))


def session(turns: dict[Point, list[Turn]], disturbed: tuple[int, ...] = (), cores: Cores = QUIET) -> Session[Point]:
    """A session in which these turns were taken, some rounds of the array disturbed."""
    made = Session(TurnWorkers[Point](1.0), cores, Goal(floor=0.0), SERIAL)
    for point, own in turns.items():
        made.turns[point] = dict(enumerate(own))
        made.rounds.blocks[point] = [
            Block(turn.rate(), "others" if i in disturbed and point == ARRAY else "") for i, turn in enumerate(own)
        ]
    return made


def named(found: tuple[Metric, ...], name: str, replica: int | None = None) -> Metric:
    (metric,) = [m for m in found if m.name == name and m.replica == replica]
    return metric


def rounds(scale: list[float], step_ms: float, items: int = 10) -> list[Turn]:
    """Turns of two steps, each round as much slower as `scale` says; all CPU time is one thread's."""
    return [Turn([steps([x * step_ms] * 2, items, 1000 * i)], x * step_ms * 2e-3) for i, x in enumerate(scale)]


def test_a_machine_that_slows_all_does_not_change_the_speedup() -> None:
    scale = [1.0, 3.0, 1.2, 5.0, 1.0, 2.0, 9.0, 1.1, 1.0, 4.0]
    made = session({SERIAL: rounds(scale, 10), ARRAY: rounds(scale, 20, items=40)})
    found, window, noted = outputs.measured(made, ARRAY, [], "naps")
    speedup = named(found, "speedup")
    assert (speedup.value, speedup.low, speedup.high) == pytest.approx((2.0, 2.0, 2.0))
    assert (window["pairs"], window["verdict"], noted) == (10, "ok", ())


def test_disturbed_turns_and_warm_up_do_not_count() -> None:
    turns = rounds([7.0] + [1.0] * 9 + [50.0], 20, items=40)
    made = session({SERIAL: rounds([1.0] * 11, 10), ARRAY: turns}, disturbed=(10,))
    made.rounds.warm_up = 1
    found, window, noted = outputs.measured(made, ARRAY, [], "naps", warm_up=1)
    assert named(found, "throughput").value == pytest.approx(2000)
    assert named(found, "time/step", 0).value == pytest.approx(0.02)
    assert named(found, "speedup").value == pytest.approx(2.0)
    assert (window["pairs"], window["rounds"], window["disturbed_rounds"]) == (9, 10, [10])
    assert noted == ("others, in 1 of 10 rounds",)


def test_a_machine_that_was_always_busy_is_inconclusive() -> None:
    made = session({SERIAL: rounds([1.0] * 9, 10), ARRAY: rounds([1.0] * 9, 20)}, disturbed=tuple(range(9)))
    found, window, noted = outputs.measured(made, ARRAY, [], "naps")
    assert named(found, "speedup").low is None
    assert window["verdict"] == "inconclusive"
    assert noted == ("inconclusive: the machine was busy: others, in 9 of 9 rounds",)


def test_on_one_core_beside_neighbours_rates_are_by_cpu_time() -> None:
    slow = [Turn(turn.replicas, turn.cpu_s / 5, by_cpu_time=True) for turn in rounds([5.0] * 9, 10)]
    array = [Turn(turn.replicas, turn.cpu_s, by_cpu_time=True) for turn in rounds([1.0] * 9, 20, items=40)]
    made = session({SERIAL: slow, ARRAY: array}, cores=BESIDE)
    found, _, noted = outputs.measured(made, ARRAY, [], "naps")
    assert named(found, "speedup").value == pytest.approx(2.0)
    assert named(found, "throughput").value == named(found, "throughput/CPU second").value == pytest.approx(2000)
    assert noted == ("on 1 of 2 cores, others used 1.0",)
    low, high = named(found, "speedup").low, named(found, "speedup").high
    assert low is not None
    assert high is not None
    assert high / low > 1.15  # caches and memory are shared


def test_replicas_are_rated_while_all_run() -> None:
    pair = [Turn([steps([10] * 40, start_ms=t), steps([10] * 40, start_ms=t + 50)], 0.8) for t in range(0, 9000, 1000)]
    found, window, _ = outputs.measured(session({SERIAL: rounds([1.0] * 9, 10), ARRAY: pair}), ARRAY, [], "naps")
    assert named(found, "throughput").value == pytest.approx(2000)
    assert named(found, "throughput", 1).value == pytest.approx(1000)
    assert window["seconds"] == pytest.approx(9 * 0.35)
    assert named(found, "throughput/CPU second").value == pytest.approx(1000)


def test_the_rate_without_a_loader_adds_up_over_workers() -> None:
    held = {"start_ns": 0, "stop_ns": 2_000_000_000, "items": 8, "cpu_s": 1.0}
    (metric,) = outputs.on_device([{"on_device": held}, {"on_device": held}], "naps")
    assert (metric.name, metric.value, metric.unit) == ("throughput/data on device", 8.0, "naps/s")
    assert outputs.on_device([{"on_device": held}, {}], "naps") == ()
    assert outputs.on_device([], "naps") == ()
