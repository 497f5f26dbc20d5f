# SPDX-License-Identifier: MIT
"""Workloads as experiments: the same losses as the job itself has, and what cannot be trained so is refused."""

import math
from pathlib import Path
from typing import Any

import pytest

from dnnsuite import jobs, training
from dnnsuite.errors import InvalidArgument
from dnnsuite.training.configurations import is_job
from dnnsuite.training.job import experiment_of_job

TEXT = {"layers": 1, "width": 16, "heads": 2, "kv_heads": 1, "ff": 16, "length": 16}
SMALL: dict[str, dict[str, Any]] = {
    "gpt": TEXT,  # two groups of parameters, a schedule by steps, clipped gradients
    "dit": {"layers": 1, "width": 16, "heads": 2, "patch": 8},  # an average of weights
    "bert": {"emsize": 16, "nhid": 16, "nlayers": 1, "nhead": 2, "bptt": 8, "vocab_size": 512},  # nothing held out
    "toy_lstm": {"length": 20},  # one batch, whatever its size
}
SIZES = {"toy_lstm": 1}
LENGTH = {"epochs": 2, "iters_per_epoch": 3, "seed": 3}


def trained(name: str, folder: Path, **changes: Any) -> training.Trained:
    given = {**SMALL[name], **LENGTH, "batch_size": SIZES.get(name, 4), **changes}
    return training.run(lambda kind: experiment_of_job(name, "quick", given, kind), folder, device="cpu", quiet=True)


@pytest.mark.parametrize("name", SMALL)
def test_losses_are_those_of_the_job(name: str, tmp_path: Path) -> None:
    found = trained(name, tmp_path / "run")
    config = jobs.JobConfig(batch_size=SIZES.get(name, 4), seed=3, data_seed=3, options=SMALL[name], steps=6)
    job = jobs.get(name, swept=True)(config)
    job.setup()
    for row in found.history:
        losses = []
        for _ in range(3):
            job.step()
            losses += job.losses()
        job.end_epoch()
        assert row["loss/train"] == pytest.approx(sum(losses) / 3, rel=1e-5)
        assert math.isfinite(row["loss/valid"])
    if metric := job.workload.metric:
        assert math.isfinite(found.history[-1][f"{metric.name}/valid"])
        assert math.isnan(found.history[-1][f"{metric.name}/train"])


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("dcgan", {}, "is no workload of one loss"),
        ("ppo", {}, "makes its batches with the model"),
        ("reso", {"workers": 1}, "is measured on other tensors than those it trains on"),
        ("gpt", {"lyers": 2}, "has no key 'lyers' .did you mean 'layers'"),
        ("gpt", {"layers": "two"}, "layers"),
        ("gpt", {"epochs": 0}, "epochs is 0: must be at least 1"),
    ],
)
def test_what_cannot_be_trained_is_refused(name: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        experiment_of_job(name, "quick", given, "cpu", data="synthetic")


def test_a_file_that_ships_is_no_job() -> None:
    assert is_job("bert")
    assert not is_job("imagenet-resnet50")
    assert not is_job("sc20")


@pytest.mark.parametrize("name", ["toy_lstm", "gpt"])
def test_a_run_goes_on_for_more_epochs_unless_its_rates_depend_on_the_last(name: str, tmp_path: Path) -> None:
    def run(folder: str, epochs: int, resume: str = "never") -> training.Trained:
        given = {**SMALL[name], **LENGTH, "batch_size": SIZES.get(name, 4), "epochs": epochs}
        make = lambda kind: experiment_of_job(name, "quick", given, kind)  # noqa: E731
        return training.run(make, tmp_path / folder, device="cpu", quiet=True, resume=resume)

    run("parts", 1)
    if name == "gpt":
        with pytest.raises(InvalidArgument, match="epochs is 2, was 1"):
            run("parts", 2, "auto")
    else:
        parts, whole = run("parts", 2, "auto"), run("whole", 2)
        assert parts.history[-1]["loss/train"] == whole.history[-1]["loss/train"]
