# SPDX-License-Identifier: MIT
"""Against the README of mila-iqia/training of November 2019: its numbers, and its output to the character."""

import json
import math

import pytest

from dnnsuite.suites import _records as seed
from dnnsuite.suites._method import Observations

HEADER = """\
--------------------------------------------------------------------------------
                    batch_size: 32
                          cuda: True
                       workers: 4
                          seed: 0
                       devices: 1
                         jr_id: 0
                           vcd: 0
                     cpu_cores: 0
                          data: /media/setepenre/UserData/tmp/fake/
                          arch: resnet18
                            lr: 0.1
                     opt_level: O0
                        repeat: 15
                        number: 1
                        report: None
--------------------------------------------------------------------------------"""


def observations(seconds: list[float], number: int = 1, skip: int = 10, loss: float = 1.0) -> Observations:
    seen = Observations(number, skip)
    at = 0
    for each in seconds:
        stop = at + round(each * 1e9)
        seen.add(at, stop, 0, [loss] * number)
        at = stop
    return seen


def test_the_header() -> None:
    arguments = {
        "batch_size": 32, "cuda": True, "workers": 4, "seed": 0, "devices": 1, "jr_id": 0, "vcd": 0, "cpu_cores": 0,
        "data": "/media/setepenre/UserData/tmp/fake/", "arch": "resnet18", "lr": 0.1, "opt_level": "O0", "repeat": 15,
        "number": 1, "report": None,
    }  # fmt: skip
    assert seed.header(arguments) == HEADER


@pytest.mark.parametrize(
    ("index", "each_s", "loss", "line"),
    [
        (0, 0.87 * 60 / 14, 7.0346, "[  0/ 15] | ETA:   0.87 min | Batch Loss   7.0346"),
        (10, 0.47 * 60 / 4, 5.4471, "[ 10/ 15] | ETA:   0.47 min | Batch Loss   5.4471"),
        (14, 7.18, 5.3205, "[ 14/ 15] | ETA:   0.00 min | Batch Loss   5.3205"),
    ],
)
def test_the_line_of_an_observation(index: int, each_s: float, loss: float, line: str) -> None:
    seen = observations([each_s] * (index + 1), loss=loss)
    assert seed.eta_line(index, 15, seen) == line


def test_the_time_left_is_that_of_what_is_kept() -> None:
    seen = observations([60.0] * 10 + [6.0, 12.0])
    assert seed.eta_line(11, 22, seen).startswith("[ 11/ 22] | ETA:   1.50 min")


def test_items_per_second_of_the_readme() -> None:
    """Its report of ResNet-18: batches of 32, five to an observation."""
    kept = [9.798663139343262, 10.155806064605713]
    rest = (10.032922506332397 * 5 - sum(kept)) / 3
    report = seed.seed_report(
        "convnet",
        {"batch_size": 32},
        "18ac3cd560",
        observations([20.0] * 10 + kept + [rest] * 3, number=5),
        32,
        {"top1": 3.5},
        {"hostname": "Midgard", "run_id": 0},
    )
    assert report["train"]["count"] == 5
    assert report["train"]["avg"] == pytest.approx(10.032922506332397, abs=1e-9)
    assert report["train"]["min"] == pytest.approx(9.798663139343262, abs=1e-9)
    assert report["train"]["max"] == pytest.approx(10.155806064605713, abs=1e-9)
    wanted = {
        "avg": 15.947496843418666,
        "max": 16.328758089210496,
        "min": 15.754534793414432,
        "range": 0.5742232957960631,
    }
    for name, value in wanted.items():
        assert report["train_item"][name] == pytest.approx(value, rel=1e-8)
    assert report["train_item"]["unit"] == "items/sec"
    assert report["metrics"] == {"top1": [3.5]}


def test_the_report_has_the_keys_of_the_readme() -> None:
    arguments = {"batch_size": 32, "cuda": True, "seed": 3, "report": "x", "arch": "resnet18", "jr_id": 0, "vcd": "0",
                 "cpu_cores": 32, "workers": 4, "devices": 1, "repeat": 15, "number": 1}  # fmt: skip
    about = {"hostname": "h", "run_id": 2, "gpu": "X"}
    report = seed.seed_report("convnet", arguments, "0123456789", observations([1.0] * 15), 32, {}, about)
    assert set(report) == {
        "arch", "batch_loss", "batch_size", "cpu_cores", "cuda", "devices", "epoch_loss", "gpu", "hostname", "jr_id",
        "metrics", "name", "number", "repeat", "run_id", "train", "train_item", "unique_id", "vcd", "version",
        "workers",
    }  # fmt: skip
    text = seed.report_json(report)
    assert text.startswith('{\n    "arch": "resnet18",\n    "batch_loss": [\n        1.0,')
    assert json.loads(text) == report


def test_at_most_a_hundred_losses_the_last() -> None:
    seen = Observations(1, 0)
    for i in range(150):
        seen.add(i, i + 1, 0, [float(i)])
    assert list(seen.losses) == [float(i) for i in range(50, 150)]
    assert seen.first_loss == 0.0


def test_the_id_is_the_same_for_all_devices_and_no_other_experiment() -> None:
    base = {"arch": "resnet18", "lr": 0.1, "version": "18ac3cd560", "batch_size": 32, "jr_id": 0, "vcd": "0", "seed": 1}
    same = {**base, "batch_size": 64, "jr_id": 3, "vcd": "3", "seed": 7, "workers": 8}
    assert seed.unique_id(base) == seed.unique_id(same)
    assert seed.unique_id(base) != seed.unique_id({**base, "lr": 0.2})
    assert len(seed.unique_id(base)) == 64


def test_lines_of_the_summary() -> None:
    toy = seed.summary_line(1, 19, 0, 4, 0.27 * 60, "./regression/polynome/pytorch/run.sh")
    assert toy == "[ 1/19][  /  ] PASSED |     0.27 MIN | ./regression/polynome/pytorch/run.sh"
    failed = seed.summary_line(16, 19, 3, 16, 9.34 * 60, "./x/run.sh")
    assert failed == "[16/19][ 3/16] FAILED |     9.34 MIN | ./x/run.sh"
    assert seed.total_line(2817.82) == "Total Time  2817.82 s"


def test_what_is_dropped_is_dropped_from_everything() -> None:
    """The original dropped ten from the average and nine from the least: 1 … 15 gave 13.0 and 10."""
    report = seed.seed_report("x", {}, "v", observations([float(i) for i in range(1, 16)]), 1, {}, {})
    for name, value in (("avg", 13.0), ("min", 11.0), ("max", 15.0), ("count", 5)):
        assert report["train"][name] == pytest.approx(value)
    assert report["train"]["sd"] == pytest.approx(math.sqrt(2))
