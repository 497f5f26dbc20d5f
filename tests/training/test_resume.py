# SPDX-License-Identifier: MIT
"""What is resumed is the same: after a kill at every write, and with every schedule and optimizer, at every epoch."""

import copy
import io
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.optim import lr_scheduler as L

from dnnsuite import results
from dnnsuite.training import Data, ExperimentArray, PerEpoch, SteppedWarmup, WarmupPlateau, read_metrics, run
from dnnsuite.training.array_stepper import ArrayStepper
from dnnsuite.training.loading import Share
from dnnsuite.training.processes import Processes
from dnnsuite.training.schedules import tbd_pytorch, tbd_tf2
from dnnsuite.training.stepper import Phases, Stepper
from dying_writes import in_child
from tiny_training import Points, experiment

EPOCHS = 2
_TIMES = ("images_per_s", "seconds", "minutes", "throughput", "speedup")
SCHEDULES = {
    "WarmupPlateau": lambda o, n: WarmupPlateau(o, 4),
    "plateau": lambda o, n: WarmupPlateau(o, 0, factor=0.5, patience=0),
    "SteppedWarmup": lambda o, n: SteppedWarmup(o, n, ((0, 1.0), (2, 0.5)), warmup_epochs=2),
    "tbd_pytorch": tbd_pytorch,
    "tbd_tf2": tbd_tf2,
    "LambdaLR": lambda o, n: PerEpoch(L.LambdaLR(o, lambda epoch: 1 / (1 + epoch))),
    "StepLR": lambda o, n: PerEpoch(L.StepLR(o, 1, 0.5)),
    "OneCycleLR": lambda o, n: PerEpoch(L.OneCycleLR(o, 0.1, total_steps=9)),
    "CosineAnnealingLR": lambda o, n: PerEpoch(L.CosineAnnealingLR(o, 4)),
    "CosineAnnealingWarmRestarts": lambda o, n: PerEpoch(L.CosineAnnealingWarmRestarts(o, 2)),
    "ReduceLROnPlateau": lambda o, n: PerEpoch(L.ReduceLROnPlateau(o, patience=0)),
    "SequentialLR": lambda o, n: PerEpoch(L.SequentialLR(o, [L.LinearLR(o, 0.5), L.StepLR(o, 1)], [2])),
}
# An array keeps the state of each model's schedule as a model alone does. Its own are the steps, epochs and losses that
# it tells them of, and the rates and other settings that they change.
IN_ARRAYS = ("WarmupPlateau", "SteppedWarmup", "OneCycleLR", "ReduceLROnPlateau")
SHARE = Share(0, list(range(8)), 8, 8)
BATCH = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4
ALONE = Processes("cpu")
OPTIMIZERS = {
    name: getattr(torch.optim, name)
    for name in ("SGD", "ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
}  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # a fork has no threads of torch's
    yield
    torch.set_num_threads(before)


def small(**changes):
    data = Data(Points(24, noise=0.1), Points(6, seed=2), 4, "points", {}, "points")
    return experiment(**{"epochs": EPOCHS, "data": data, **changes})


def array(B=2, **changes):
    return ExperimentArray([small(optimizer=partial(torch.optim.SGD, lr=0.1 / (1 + i)), **changes) for i in range(B)])


def told(out: Path) -> dict:
    """What the files of a run say, without times."""
    found = {}
    for path in sorted(out.rglob("*.pt")):
        state = torch.load(path, weights_only=True)
        state.pop("pairs", None)
        if "position" in state:
            position = state["position"]
            position["history"] = [untimed(row) for row in position["history"]]
            position["samples"] = [(sample[0], sample[3]) for sample in position["samples"]]
            position.pop("minutes")
        found[str(path.relative_to(out))] = state
    found["metrics"] = [untimed(row) for row in read_metrics(out)]
    table = results.load(out)
    found["record"] = sorted(
        (name, value) for name, value in zip(table["metric"], table["value"], strict=True) if untimed({name: 0})
    )
    found["rated"] = "throughput" in set(table["metric"])
    found["status"] = sorted(set(table["status"]))
    found["samples"] = len((out / "samples.csv").read_text().splitlines())
    found["names"] = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    return found


def untimed(row):
    return {name: value for name, value in row.items() if not name.startswith(_TIMES)}


def same(one, other) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or (one != one and other != other)


@pytest.mark.parametrize(("make", "every"), [(small, 1), (array, 4)])  # an array has a file of each model
def test_a_kill_at_a_write_leaves_what_goes_on_to_the_files_of_an_undisturbed_run(tmp_path, make, every):
    def train(out, resume="never"):
        run(make(), out, resume=resume, quiet=True)

    train(tmp_path / "whole")  # here, so that children need not import what it does
    whole = told(tmp_path / "whole")
    writes = in_child(lambda: train(tmp_path / "counted"))
    assert writes > 3 * EPOCHS  # metrics, best and checkpoint of each epoch, the record
    for number in range(1, writes + 1, every):
        out = tmp_path / str(number)
        assert in_child(lambda out=out: train(out), number) is None
        in_child(lambda out=out: train(out, "auto"))
        found = told(out)
        assert {key for key in whole if not same(found.get(key), whole[key])} == set(), f"write {number}"
        assert found.keys() == whole.keys()


@pytest.mark.parametrize(
    ("changes", "B"),
    [
        pytest.param(changes, B, id=f"{name}-{B}")
        for B in (0, 2)
        for name, changes in (
            *((name, {"schedule": make}) for name, make in SCHEDULES.items() if not B or name in IN_ARRAYS),
            *((name, {"optimizer": partial(made, lr=0.01)}) for name, made in OPTIMIZERS.items()),
        )
    ],
)
def test_each_schedule_and_optimizer_goes_on_at_each_epoch(changes, B):
    """Saved and loaded at each epoch, into another and into itself: rates and weights are those of the whole run."""

    epochs = (4 if B else 5) if "schedule" in changes else 2

    def new():
        one = small(**changes, model=plain)
        return ArrayStepper(ExperimentArray([one] * B), ALONE) if B else Stepper(one, ALONE)

    def train(again):
        stepper, rates = new(), []
        for epoch in range(epochs):
            stepper.begin_epoch(epoch)
            for i in range(3):
                stepper.begin_step(3 * epoch + i)
                rates.append(stepper.learning_rates())
                stepper.train(*stepper.place(dict.fromkeys(range(B or 1), BATCH)), SHARE, Phases(0))()
            stepper.end_epoch(epoch, [1.0] * (B or 1))
            stepper = again(stepper)
        weights = copy.deepcopy(stepper.state()["model"])
        stepper.close()
        return rates, weights

    def into_another(stepper):
        other = new()
        other.load(saved(stepper.state()))
        stepper.close()
        return other

    def into_itself(stepper):
        stepper.load(saved(stepper.state()))
        return stepper

    whole = train(lambda stepper: stepper)
    assert same(train(into_another), whole)
    assert same(train(into_itself), whole)


def plain():
    return torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 4))


def saved(state):
    """A state as a file gives it back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_the_rate_of_a_resumed_run_is_of_all_its_windows(tmp_path):
    out = tmp_path / "run"
    run(small(epochs=1), out, quiet=True)
    first = len((out / "samples.csv").read_text().splitlines())
    run(small(epochs=3), out, resume="auto", quiet=True)
    rows = (out / "samples.csv").read_text().splitlines()
    assert len(rows) - 1 == 3 * (first - 1)
    assert sum(",warmup," in row for row in rows) == 2  # of each process the first, in which everything starts
