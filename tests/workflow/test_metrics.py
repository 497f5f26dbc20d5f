# SPDX-License-Identifier: MIT

import numpy as np
import pytest

from dnnsuite._runs.rates import Steps
from dnnsuite._runs.record import Metric
from dnnsuite.workflow import metrics

MS = 1_000_000


def steps(times_ms: list[float], per_epoch: int, items: int = 10, start_ms: float = 0) -> Steps:
    edges = np.rint((start_ms + np.concatenate([[0], np.cumsum(times_ms)])) * MS).astype(np.int64)
    n = len(times_ms)
    return Steps(
        edges[:-1], edges[1:], np.full(n, items, np.int64), np.arange(n, dtype=np.int64) // per_epoch
    )


def named(found: tuple[Metric, ...], name: str, replica: int | None = None) -> Metric:
    (metric,) = [m for m in found if m.name == name and m.replica == replica]
    return metric


def test_the_first_epoch_is_dropped() -> None:
    found, window = metrics.measured([steps([100, 100, 10, 10, 10, 10], per_epoch=2)], "naps")
    assert window["dropped_epochs"] == 1
    assert window["steps"] == [4]
    throughput = named(found, "throughput")
    assert throughput.value == pytest.approx(1000)
    assert throughput.unit == "naps/s"
    assert throughput.low is None
    assert window["no_interval"].startswith("too short: 4 steps")
    assert named(found, "time/step", 0).value == pytest.approx(0.01)


def test_a_single_epoch_is_kept() -> None:
    assert metrics.measured([steps([100, 10], per_epoch=2)], "naps")[1]["dropped_epochs"] == 0


def test_a_longer_warm_up_is_found() -> None:
    noise = np.random.default_rng(0).normal(10, 0.01, 300)
    noise[:60] += 40
    dropped, found = metrics.warmup_epochs([steps(list(noise), per_epoch=20)])
    assert dropped == 3
    assert found[0]["steady"] is True
    assert found[0]["truncated_steps"] == 60


def test_drift_never_drops_more_than_half() -> None:
    dropped, found = metrics.warmup_epochs([steps(list(np.linspace(10, 20, 100)), per_epoch=10)])
    assert dropped <= 5
    assert found[0]["steady"] is False


def test_replicas_are_rated_while_all_run() -> None:
    pair = [steps([10] * 40, 10), steps([10] * 40, 10, start_ms=50)]
    found, window = metrics.measured(pair, "naps")
    assert named(found, "throughput").value == pytest.approx(2000)
    assert window["seconds"] == pytest.approx(0.25)


def test_asynchronous_steps_are_rated_by_epoch() -> None:
    # Two steps return at once and the third waits for all: only 30 items in 30 ms is known.
    found, window = metrics.measured([steps([0.1, 0.1, 29.8] * 60, per_epoch=3)], "naps", asynchronous=True)
    assert window["dated_by"] == "epoch"
    assert named(found, "throughput").value == pytest.approx(1000)
    assert named(found, "throughput").low == pytest.approx(1000)
    assert named(found, "time/step", 0).value == pytest.approx(0.01)


def test_one_step_has_no_interval() -> None:
    found, _ = metrics.measured([steps([10], per_epoch=1)], "naps")
    assert named(found, "throughput").low is None


def test_the_rate_without_a_loader_adds_up_over_workers() -> None:
    held = {"start_ns": 0, "stop_ns": 2_000_000_000, "items": 8}
    (metric,) = metrics.on_device([{"on_device": held}, {"on_device": held}], "naps")
    assert (metric.name, metric.value, metric.unit) == ("throughput/data on device", 8.0, "naps/s")
    assert metrics.on_device([{"on_device": held}, {}], "naps") == ()
    assert metrics.on_device([], "naps") == ()


def test_the_rate_per_cpu_second_leaves_warm_up_out() -> None:
    replicas = [steps([10] * 6, per_epoch=2), steps([10] * 6, per_epoch=2)]
    told = [{"cpu_s": [9.0, 0.5, 0.5]}, {"cpu_s": [9.0, 1.0, 2.0]}]
    items = sum(float(each.items.sum()) for each in replicas) * 2 / 3
    (metric,) = metrics.per_cpu_second(told, replicas, 1, "naps")
    assert (metric.name, metric.unit) == ("throughput/CPU second", "naps/s")
    assert metric.value == pytest.approx(items / 4.0)
    assert metrics.per_cpu_second([told[0], {}], replicas, 1, "naps") == ()
    assert metrics.per_cpu_second([{"cpu_s": [0.0, 0.0, 0.0]}], replicas[:1], 1, "naps") == ()
