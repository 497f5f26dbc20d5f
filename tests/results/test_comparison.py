# SPDX-License-Identifier: MIT
"""Two sets of runs: verdicts, conditions, pairs."""

import json
import math
from collections.abc import Iterable
from typing import Any

import pandas as pd
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.results import compare
from dnnsuite.results.comparison import Compared, across, overall
from dnnsuite.results.table import Row, frame_of

COMMON: dict[str, Any] = {
    "job": "vae", "mode": "shares", "precision": "fp32", "unit": "images/s", "item": "images", "kind": "suite",
    "device": "cpu", "cpu_model": "EPYC", "cpus": 2, "torch": "2.13.0", "hostname": "node", "job_version": "1",
}  # fmt: skip


def runs(rates: Iterable[float], plan: str = "A", start_min: int = 0, every_min: int = 1, **more: Any) -> pd.DataFrame:
    """A run each minute, from `start_min` on."""
    rows = []
    for i, rate in enumerate(rates):
        failure = None if math.isfinite(rate) else "crash"
        minute = start_min + i * every_min
        values = {"run_id": f"{plan}{i}", "plan_id": plan, "repeat": i, "path": f"{plan}/{i}", **COMMON, **more}
        status = "failed" if failure else "ok"
        started = f"2026-11-22T10:{minute:02d}:00.000Z"
        rows.append(Row(value=rate, failure=failure, status=status, started=started, **values))
    return frame_of(rows)


@pytest.mark.parametrize(("factor", "verdict"), [(1.2, "faster"), (0.8, "slower"), (1.0, "same"), (1.004, "same")])
def test_verdicts_on_quiet_runs(factor: float, verdict: str) -> None:
    rates = [100.0, 100.2, 99.9, 100.1]
    (found,) = compare(runs(rates), runs([factor * rate for rate in rates], "B"))
    assert (found.point, found.verdict, found.runs, found.unit) == ("vae", verdict, (4, 4), "images/s")
    assert found.ratio == pytest.approx(factor)
    assert found.low <= found.ratio <= found.high
    assert found.baseline == pytest.approx(100.05)
    assert json.dumps(found.to_dict())


def test_noise_is_inconclusive_and_says_how_many_more() -> None:
    (found,) = compare(runs([100.0, 90.0, 110.0]), runs([98.0, 112.0, 93.0], "B"))
    assert found.verdict == "inconclusive"
    assert found.more_runs is not None
    assert found.more_runs > 10


def test_a_large_change_takes_fewer_runs_than_a_small_one() -> None:
    """A tenth in noise of a fifth wants some tens of runs: not as many as would show that nothing changed by 1 %."""
    noise = [80.0, 120.0, 95.0, 105.0]
    (large,) = compare(runs(noise), runs([1.1 * rate for rate in noise], "B", start_min=30))
    (none,) = compare(runs(noise), runs(noise[::-1], "B", start_min=30))
    assert (large.verdict, none.verdict) == ("inconclusive", "inconclusive")
    assert large.more_runs is not None
    assert none.more_runs is not None
    assert 10 < large.more_runs < 200 < 2000 < none.more_runs
    assert "more" not in large.reasons[0]


def test_one_run_is_never_a_verdict() -> None:
    (found,) = compare(runs([100.0]), runs([50.0], "B"))
    assert (found.verdict, found.more_runs, found.ratio) == ("inconclusive", 2, pytest.approx(0.5))


def test_runs_made_in_turns_are_paired() -> None:
    """The machine's drift, which both have, is no noise then."""
    drift = [100.0, 80.0, 60.0, 90.0]
    baseline = runs(drift, every_min=2)
    candidate = runs([1.1 * rate for rate in drift], "B", start_min=1, every_min=2)
    (paired,) = compare(baseline, candidate)
    assert (paired.method, paired.verdict) == ("paired", "faster")
    (unpaired,) = compare(baseline, candidate, method="unpaired")
    assert (unpaired.method, unpaired.verdict) == ("unpaired", "inconclusive")
    after = runs([1.1 * rate for rate in drift], "B", start_min=10)
    assert compare(baseline, after)[0].method == "unpaired"
    elsewhere = runs([1.1 * rate for rate in drift], "B", start_min=1, every_min=2, hostname="other")
    assert compare(baseline, elsewhere)[0].method == "unpaired"


def test_copies_that_share_the_machine_are_one_run() -> None:
    def copies(plan: str, rates: list[float]) -> pd.DataFrame:
        sides = [runs(rates, plan, share=str(i), copies=2) for i in range(2)]
        return pd.concat([side.assign(run_id=side["run_id"] + f"/{i}") for i, side in enumerate(sides)])

    (found,) = compare(copies("A", [100.0, 101.0]), copies("B", [100.0, 101.0]))
    assert found.runs == (2, 2)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cpus": 4}, "processor is EPYC, 2 CPUs in the baseline and EPYC, 4 CPUs in the candidate"),
        ({"preset": "smoke"}, "preset is the job's own in the baseline and smoke in the candidate"),
        ({"torch": "2.12.1"}, "torch is 2.13 in the baseline and 2.12 in the candidate"),
        ({"feed": "loader"}, "batches from is memory in the baseline and loader in the candidate"),
    ],
)
def test_unlike_runs_are_not_compared(change: dict[str, Any], reason: str) -> None:
    baseline = runs([100.0, 101.0], feed="memory")
    (found,) = compare(baseline, runs([50.0, 51.0], "B", **{"feed": "memory", **change}))
    assert (found.verdict, found.reasons) == ("unlike", (reason,))
    assert math.isnan(found.ratio)


def test_what_is_compared_may_differ() -> None:
    other = runs([50.0, 50.1, 50.0], "B", cpus=4, threads=2)
    (found,) = compare(runs([100.0, 100.1, 100.0], threads=1), other, ignoring=across(["machine"]))
    assert found.verdict == "slower"
    assert across(["torch"]) == ["torch"]
    with pytest.raises(InvalidArgument, match=r"--across machin: no such condition \(did you mean 'machine'"):
        across(["machin"])


def test_what_differs_within_a_side_is_named() -> None:
    mixed = pd.concat([runs([100.0, 101.0]), runs([100.0, 101.0], "C", torch="2.12.0")])
    (found,) = compare(mixed, runs([100.0, 101.0], "B"))
    assert found.verdict == "unlike"
    assert "torch differs within the baseline: 2.12 and 2.13" in found.reasons


def test_points_that_failed_or_are_missing() -> None:
    baseline = pd.concat([runs([100.0, 101.0]), runs([1.0, 1.0], "A", job="wlm"), runs([math.nan], "A", job="ssd")])
    failed = runs([math.nan, math.nan], "B", message="out of paper")
    found = {each.point: each for each in compare(baseline, pd.concat([failed, runs([2.0], "B", job="new")]))}
    assert {point: each.verdict for point, each in found.items()} == {
        "vae": "failed", "wlm": "missing", "ssd": "missing", "new": "missing",
    }  # fmt: skip
    assert found["vae"].reasons == ("crash: out of paper",)
    assert found["new"].reasons == ("only in the candidate",)


def test_a_run_of_which_the_record_of_a_copy_is_lost_does_not_count() -> None:
    shares = [runs([100.0, 101.0, 100.5], share=str(i), copies=2) for i in range(2)]
    lost = [runs([100.0, 101.0, 180.0], "B", share="0", copies=2), runs([100.0, 101.0], "B", share="1", copies=2)]
    (found,) = compare(pd.concat(shares), pd.concat(lost))
    assert found.runs == (3, 2)
    assert found.remarks == ("1 of 3 runs of the candidate do not count: a copy has no record",)


def test_runs_that_failed_in_part_are_told_and_do_not_count() -> None:
    baseline = runs([100.0, 100.1, 100.0, 100.1])
    (found,) = compare(baseline, runs([50.0, math.nan, 50.1, 50.0], "B", message="no memory"))
    assert (found.verdict, found.runs, found.failed) == ("slower", (4, 3), (0, 1))
    assert found.remarks == ("1 of 4 runs of the candidate do not count: crash: no memory",)
    alone = runs([150.0, 100.0, 100.6], "B", share="0", copies=2)  # the other copy left it the machine in the first run
    other = runs([math.nan, 100.0, 100.6], "B", share="1", copies=2)
    shares = [runs([100.0, 101.0, 100.5], share=str(i), copies=2) for i in range(2)]
    (found,) = compare(pd.concat(shares), pd.concat([alone, other]))
    assert (found.runs, found.failed) == ((3, 2), (0, 1))
    assert found.candidate == pytest.approx(math.sqrt(100.0 * 100.6))


def test_what_disturbed_runs_is_told() -> None:
    flagged = runs([100.0, 100.1, 100.0], "B")
    flagged["disturbances"] = ["contended; throttled", "", "contended"]
    (found,) = compare(runs([100.0, 100.1, 100.0]), flagged)
    assert found.verdict == "same"
    assert found.remarks == ("contended, throttled in 2 of 3 runs of the candidate",)


def test_variants_and_modes_are_points() -> None:
    both = pd.concat([runs([1.0, 1.0], variant="number=2"), runs([2.0, 2.0], "A2", variant="number=4")])
    assert [each.point for each in compare(both, both)] == ["vae [number=2]", "vae [number=4]"]
    workflow = runs([1.0, 1.0], kind="workflow", mode="hfta", B=4)
    assert [each.point for each in compare(workflow, workflow)] == ["vae hfta fp32 B=4"]


def test_a_time_is_faster_where_it_is_less() -> None:
    baseline = runs([2.0, 2.01, 2.0], metric="time/step", unit="s")
    (found,) = compare(baseline, runs([1.0, 1.01, 1.0], "B", metric="time/step", unit="s"), metric="time/step")
    assert (found.verdict, round(found.ratio, 1)) == ("faster", 2.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threshold": 0}, "--threshold 0: must be more than 0"),
        ({"threshold": math.nan}, "--threshold nan: must be"),
        ({"method": "x"}, "--method x: accepted: auto, paired, unpaired"),
        ({"metric": "thruput"}, "no run of the baseline has 'thruput'"),
    ],
)
def test_refusals(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        compare(runs([1.0]), runs([1.0]), **options)


def test_pairs_want_as_many_runs() -> None:
    with pytest.raises(InvalidArgument, match="--method paired: vae has 2 runs in the baseline and 3"):
        compare(runs([1.0, 1.0]), runs([1.0, 1.0, 1.0], "B"), method="paired")


def test_one_number_for_two_machines_is_the_geometric_mean_of_the_jobs():
    points = [Compared(str(i), "faster", r, r / 1.1, r * 1.1) for i, r in enumerate((2.0, 0.5, 4.0, 1.0))]
    count, ratio, low, high = overall([*points, Compared("odd", "unlike")])
    assert (count, ratio) == (4, pytest.approx(4 ** (1 / 4)))
    assert math.log(high / ratio) == pytest.approx(math.log(1.1) / 2)  # a quarter of the root of four squares
    assert low == pytest.approx(ratio**2 / high)
    assert math.isnan(overall([*points, Compared("one", "inconclusive", 1.5)])[2])
    assert overall([])[0] == 0


def test_weights_of_a_suite_are_those_of_its_one_number():
    points = [Compared("a", "faster", 2.0, 1.9, 2.1, weight=3.0), Compared("b", "same", 1.0, 0.99, 1.01)]
    count, ratio, low, high = overall(points)
    assert (count, ratio) == (2, pytest.approx(2 ** (3 / 4)))
    halves = math.log(2.1 / 1.9) / 2, math.log(1.01 / 0.99) / 2
    assert math.log(high / low) / 2 == pytest.approx(math.hypot(3 * halves[0], halves[1]) / 4)
    (found,) = compare(runs([1.0, 1.0]).assign(weight=2.0), runs([1.0, 1.0], "B"))
    assert found.weight == 2.0
    assert "it weighs 2 in the baseline, which counts, and 1 in the candidate" in found.remarks


def test_the_change_is_that_of_the_two_rates_that_are_shown():
    one, two = (runs([100.0, 400.0, 100.0], "A"), runs([90.0, 90.0, 420.0], "B"))
    (found,) = compare(one, two, method="unpaired")
    assert found.candidate / found.baseline == pytest.approx(found.ratio)
