# SPDX-License-Identifier: MIT
"""Workloads as experiments: the same losses as the job itself has, and what cannot be trained so is refused."""

import contextlib
import json
import math
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch.nn import functional as F

from dnnsuite import jobs, training
from dnnsuite._runs.failures import NotFinite
from dnnsuite._runs.reading import read_run
from dnnsuite.data.batches import ArrayBatches
from dnnsuite.errors import BadData, Error, InvalidArgument
from dnnsuite.training.job import array_of_job, experiment_of_job, values_of_job
from dnnsuite.training.record import Until, arrivals
from dnnsuite.training.settings import is_job

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
        ("dcgan", {}, "in turn; train takes jobs of one loss"),
        ("cart", {}, "has no measure on held-out data"),
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


CLICKS = {"tables": 4, "rows": 50, "size": 4, "rank": 4, "bottom": "8", "top": "8", "iters_per_epoch": 2, "epochs": 3}


@pytest.mark.parametrize("name", ["gpt", "dit"])  # two groups and clipped gradients; an average of weights
def test_an_array_of_seeds_trains_each_as_alone(name: str, tmp_path: Path) -> None:
    short = {"epochs": 1, "iters_per_epoch": 2, "batch_size": 2}
    given = {**SMALL[name], **short, "seed": 3}
    make = lambda kind: array_of_job(name, "quick", given, kind, 2)  # noqa: E731
    array = training.run(make, tmp_path / "array", device="cpu", quiet=True)
    for model in range(2):
        alone = trained(name, tmp_path / f"alone-{model}", **short, seed=3 + model)
        for mine, own in zip((row for row in array.history if row["model"] == model), alone.history, strict=True):
            assert mine["loss/train"] == pytest.approx(own["loss/train"], rel=1e-4)
    assert array.history[-1]["loss/train"] != array.history[-2]["loss/train"]


def to_target(folder: Path, until: str, seeds: int = 2, resume: str = "never", **given: Any) -> training.Trained:
    keys = {**CLICKS, "batch_size": 8, **given}
    make = lambda kind: array_of_job("dcnv2", "quick", keys, kind, seeds, until=until)  # noqa: E731
    return training.run(make, folder, device="cpu", quiet=True, resume=resume)


def test_a_run_ends_at_its_target_and_says_what_it_took(tmp_path: Path) -> None:
    found = to_target(tmp_path / "there", "0.01")
    assert [row["epoch"] for row in found.history] == [1, 1]
    assert found.record is not None
    metrics = {(each.name, each.replica): each for each in found.record.metrics}
    assert metrics["samples to target", None].value == 2 * 8
    assert metrics["samples to target", 1].value == 2 * 8
    mean = metrics["seconds to target", None]
    assert mean.low is not None
    assert mean.low <= mean.value <= (mean.high or 0)
    again = to_target(tmp_path / "there", "0.01", resume="auto")
    assert len(again.history) == 2  # it was done already


def test_a_target_that_some_miss_has_no_mean(tmp_path: Path) -> None:
    found = to_target(tmp_path / "missed", "0.9999")
    assert found.record is not None
    assert found.record.ok
    assert [row["epoch"] for row in found.history] == [1, 1, 2, 2, 3, 3]
    assert found.record.details["until"]["reached"] == []
    assert not [each for each in found.record.metrics if each.name.endswith("to target")]


def bandit(**changes: Any) -> str:
    """Declare a job whose batches its model makes, trained by two classes of optimizers, and return its name."""

    class Pulls:
        record: ClassVar[dict[str, str]] = {"source": "drawn"}
        sizes: ClassVar[dict[str, int]] = {}

        def __init__(self, config: Any, options: Any) -> None:
            self._generator = torch.Generator().manual_seed(config.data_seed)

        def batch_of(self, model: Any, i: int) -> tuple[torch.Tensor, ...]:
            x = torch.randn(16, 3, generator=self._generator)
            with torch.no_grad():
                arms = torch.multinomial(model(x).softmax(-1), 1, generator=self._generator)
            return x, arms, (arms[:, 0] == x.argmax(-1)).float() - 0.3

    def held(config: Any, options: Any) -> ArrayBatches:
        return ArrayBatches(torch.randn(256, 3, generator=torch.Generator().manual_seed(1)), batch_size=256)

    def loss(model: Any, x: torch.Tensor, arms: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return -(model(x).log_softmax(-1).gather(1, arms)[:, 0] * gain).mean()

    def model(options: Any, hyper: Any) -> torch.nn.Module:
        return torch.nn.Linear(3, 3)

    def right(model: Any, x: torch.Tensor) -> torch.Tensor:
        return (model(x).argmax(-1) == x.argmax(-1)).float().mean()

    groups = [
        jobs.Group(lambda name, p: name == "weight", jobs.Made("Adam", {"lr": 0.05})),
        jobs.Group(lambda name, p: True, jobs.Made("SGD", {"lr": 0.05})),
    ]
    values: dict[str, Any] = {
        "name": "two_ways", "description": "a bandit", "unit": "pulls", "model": model, "rollouts": Pulls, "loss": loss,
        "held_out": held, "metric": jobs.Metric("right", right, batches=1, target={"quick": 0.9}),
        "optimizer": groups, "presets": {"default": jobs.Preset(4, 40, batch_size=16)},
    }  # fmt: skip
    return jobs.declare(jobs.Workload(**values | changes)).name


def test_a_job_that_makes_its_batches_and_has_two_optimizers_reaches_its_target(tmp_path: Path) -> None:
    name = bandit()
    make = lambda kind: experiment_of_job(name, "quick", {}, kind, until="target")  # noqa: E731
    found = training.run(make, tmp_path / "run", device="cpu", quiet=True)
    assert found.record is not None
    assert found.record.details["until"]["reached"] == [0]
    assert found.history[-1]["right/valid"] >= 0.9
    with pytest.raises(InvalidArgument, match="trains by Adam and SGD, which cannot train as an array: add --B 1"):
        array_of_job(name, "quick", {}, "cpu", 2)


class Stuck:
    """A game that does not end with its third batch, and whose player ignores errors."""

    record: ClassVar[dict[str, str]] = {"source": "a game"}
    sizes: ClassVar[dict[str, int]] = {}

    def __init__(self, config: Any, options: Any) -> None: ...

    def batch_of(self, model: Any, i: int) -> tuple[torch.Tensor, ...]:
        while i == 2:
            with contextlib.suppress(RuntimeError):
                model(torch.zeros(1, 3))
        return torch.zeros(16, 3), torch.zeros(16, 1, dtype=torch.int64), torch.ones(16)


def test_a_rollout_that_never_ends_is_a_run_that_took_too_long(tmp_path: Path) -> None:
    name = bandit(name="stuck", rollouts=Stuck, optimizer=jobs.Made("SGD", {"lr": 0.1}))
    make = lambda kind: experiment_of_job(name, "quick", {}, kind, batch_timeout_s=0.2)  # noqa: E731
    with pytest.raises(Error, match=r"job stuck did not make batch 2 within 0\.2 s: .*--batch-timeout"):
        training.run(make, tmp_path / "run", device="cpu", quiet=True)
    record = read_run(tmp_path / "run" / "run.json")
    assert record.verdict.failure == "timeout"
    with pytest.raises(InvalidArgument, match="--batch-timeout -1: must be a positive number"):
        experiment_of_job(name, "quick", {}, "cpu", batch_timeout_s=-1.0)
    with pytest.raises(InvalidArgument, match="--batch-timeout is for jobs with `rollouts`"):
        experiment_of_job("toy_reg", "quick", {}, "cpu", batch_timeout_s=5.0)


def test_rollouts_are_not_shared_by_an_array_of_seeds() -> None:
    name = bandit(name="one_way", optimizer=jobs.Made("SGD", {"lr": 0.1}))
    with pytest.raises(InvalidArgument, match=r"makes its batches with the model, .*: add --B 1"):
        array_of_job(name, "quick", {}, "cpu", 2)
    with pytest.raises(InvalidArgument, match=r"job one_way makes its batches .*, which several processes do not"):
        values_of_job(name, "quick", {}, "cpu", processes=2)  # of a user's job, before processes are started


def test_several_optimizers_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    data = lambda config, options: ArrayBatches(torch.ones(64, 3), torch.ones(64, 3), batch_size=4)  # noqa: E731
    loss = lambda model, x, y: F.mse_loss(model(x), y)  # noqa: E731
    name = bandit(
        name="fitted", data=data, rollouts=None, loss=loss, held_out=data, metric=jobs.Metric("error", loss, "less")
    )

    def run(folder: str, epochs: int, resume: str = "never") -> list[float]:
        keys = {"epochs": epochs, "iters_per_epoch": 3}
        make = lambda kind: experiment_of_job(name, "quick", keys, kind)  # noqa: E731
        found = training.run(make, tmp_path / folder, device="cpu", quiet=True, resume=resume)
        return [row["loss/train"] for row in found.history]

    run("resumed", 2)
    assert run("resumed", 4, "auto") == run("whole", 4)


def test_a_measure_that_is_no_number_ends_the_training(tmp_path: Path) -> None:
    data = lambda config, options: ArrayBatches(torch.ones(8, 3), torch.ones(8, 3), batch_size=8)  # noqa: E731
    loss = lambda model, x, y: F.mse_loss(model(x), y)  # noqa: E731
    measure = jobs.Metric("error", lambda model, x, y: loss(model, x, y) * math.nan, batches=1)
    name = bandit(name="no_number", data=data, rollouts=None, loss=loss, held_out=data, metric=measure)
    make = lambda kind: experiment_of_job(name, "quick", {"iters_per_epoch": 2}, kind)  # noqa: E731
    with pytest.raises(NotFinite, match=r"the metric 'error' on held-out data is NaN after epoch 1 \(step 2\)"):
        training.run(make, tmp_path / "run", device="cpu", quiet=True)


def test_a_job_that_splits_its_batches_is_trained_as_it_is_run(tmp_path: Path) -> None:
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(1))
    data = lambda config, options: ArrayBatches(x, x, batch_size=config.batch_size, seed=0)  # noqa: E731
    loss = lambda model, x, y: F.mse_loss(model(x), y)  # noqa: E731
    more = {
        "data": data,
        "rollouts": None,
        "loss": loss,
        "held_out": data,
        "metric": jobs.Metric("error", loss, "less", batches=1),
    }
    name = bandit(name="in_parts", accumulate=4, optimizer=jobs.Made("SGD", {"lr": 0.1}), **more)
    job = jobs.get(name)(jobs.JobConfig(batch_size=16, steps=6))
    job.setup()
    for _ in range(6):
        job.step()
    keys = {"epochs": 2, "iters_per_epoch": 3}
    found = training.run(lambda kind: experiment_of_job(name, "quick", keys, kind), tmp_path / "one", quiet=True)
    assert found.history[-1]["error/valid"] == pytest.approx(job.metrics()["error"], rel=1e-5)
    array = training.run(lambda kind: array_of_job(name, "quick", keys, kind, 2), tmp_path / "two", quiet=True)
    assert array.history[-2]["error/valid"] == pytest.approx(job.metrics()["error"], rel=1e-5)


def test_a_target_is_looked_at_about_twenty_times_over_the_same_steps() -> None:
    made = experiment_of_job("dcnv2", "quick", {}, "cpu", until="target")
    assert made.until == Until("AUC", "more", 0.75)
    assert made.epochs == 20
    assert made.epochs * made.order.steps == 180


def test_a_model_arrives_where_it_is_as_good_for_the_first_time() -> None:
    values = [(0, 5.0), (1, 9.0), (0, math.nan), (1, 2.0), (0, 3.0), (1, 8.0)]
    rows: list[dict[str, float]] = [
        {"model": model, "step": 10 * (1 + i // 2), "seconds/train": 1.5, "bits/valid": value}
        for i, (model, value) in enumerate(values)
    ]
    found = arrivals(Until("bits", "less", 3.0), rows)
    assert {model: tuple(each) for model, each in found.items()} == {0: (4.5, 30), 1: (3.0, 20)}


@pytest.mark.parametrize(
    ("name", "preset", "until", "words"),
    [
        ("gpt", "paper", "target", "no target for the preset paper .it has 3.6 for quick, 3 for default."),
        ("bert", "quick", "target", "no measure on held-out data"),
        ("gpt", "quick", "soon", "--until 'soon': accepted are target and a value of 'bits per token'"),
        ("gpt", "quick", "nan", "is finite"),
    ],
)
def test_targets_that_are_none_are_refused(name: str, preset: str, until: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        experiment_of_job(name, preset, {}, "cpu", data="synthetic", until=until)


def test_lines_of_a_run_have_its_metric_and_no_invented_loss(tmp_path: Path) -> None:
    """The held-out data of dino are other tensors than its batches and have no loss."""
    small = {"width": 8, "heads": 2, "hidden": 8, "bottleneck": 4, "prototypes": 8}
    given = {**small, "batch_size": 4, "epochs": 1, "iters_per_epoch": 2}
    training.run(
        lambda kind: experiment_of_job("dino", "quick", given, kind, data="synthetic"), tmp_path / "run",
        device="cpu", quiet=True,
    )  # fmt: skip
    text = (tmp_path / "run" / "train.log").read_text()
    assert "8 samples an epoch; batches for validation: 1" in text
    assert re.search(r"Epoch 1, step 2 of 2: [\d.,]+ samples/s, loss [\d.]+", text)
    assert re.search(r"INFO - loss [\d.]+; held out: neighbours' accuracy [\d.]+\n", text)


def test_a_run_that_its_own_code_ends_is_recorded(tmp_path: Path) -> None:
    class Ends:
        record: ClassVar[dict[str, str]] = {"source": "drawn"}
        sizes: ClassVar[dict[str, int]] = {}

        def __init__(self, config: Any, options: Any) -> None:
            self._left = iter([(torch.zeros(4, 1),)] * 4)

        def batch(self, i: int) -> tuple[torch.Tensor, ...]:
            return next(self._left)

    jobs.declare(jobs.Workload(
        name="ends", description="ends", unit="rows", model=lambda options, hyper: torch.nn.Linear(1, 1), data=Ends,
        loss=lambda model, x: model(x).square().mean(), optimizer=jobs.Made("SGD", {"lr": 0.1}),
        presets={"default": jobs.Preset(2, 5, batch_size=4)},
    ))  # fmt: skip
    with pytest.raises(BadData, match=r"the data of job ends end before batch \d"):
        training.run(
            lambda kind: experiment_of_job("ends", "default", {}, kind), tmp_path / "run", device="cpu", quiet=True
        )
    verdict = json.loads((tmp_path / "run" / "run.json").read_text())["verdict"]
    assert (verdict["failure"], verdict["message"][:20]) == ("data", "the data of job ends")
