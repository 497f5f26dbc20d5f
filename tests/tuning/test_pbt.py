# SPDX-License-Identifier: MIT
"""Population-based training: what is shown belongs to one epoch, and a copy trains with its own values."""

import pytest
import torch

import dnnsuite
from dnnsuite import results
from dnnsuite.tuning import PBT, Choice, LogUniform, Random, Uniform

L = torch.optim.lr_scheduler
QUIET = {"out": False, "quiet": True, "threads": 1}


class Weight(torch.nn.Module):
    """One weight whose gradient is 1: a step of SGD takes the learning rate off it."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x):
        return self.w


class Scaled(torch.nn.Module):
    """A model whose configuration is in its code, not in its weights."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.a, self.b, self.scale = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2), scale

    def forward(self, x):
        return self.b(torch.relu(self.a(x))) * self.scale


SCHEDULES = {
    "LambdaLR": lambda o: L.LambdaLR(o, lambda e: 1 / (1 + e)),
    "MultiplicativeLR": lambda o: L.MultiplicativeLR(o, lambda e: 0.9),
    "StepLR": lambda o: L.StepLR(o, 2, 0.5),
    "CosineAnnealingLR": lambda o: L.CosineAnnealingLR(o, 9, eta_min=1e-4),
    "CosineAnnealingWarmRestarts": lambda o: L.CosineAnnealingWarmRestarts(o, 4),
    "LinearLR": lambda o: L.LinearLR(o, 0.5, total_iters=5),
    "SequentialLR": lambda o: L.SequentialLR(o, [L.LinearLR(o, 0.5, total_iters=3), L.StepLR(o, 2)], [3]),
    "ReduceLROnPlateau": lambda o: L.ReduceLROnPlateau(o, mode="max", patience=1, factor=0.5),
}
NAMED = {
    "StepLR": {"step_size": 2, "gamma": 0.5},
    "CosineAnnealingLR": {"T_max": 9, "eta_min": 1e-4},
    "CosineAnnealingWarmRestarts": {"T_0": 4},
    "LambdaLR": {"lr_lambda": lambda e: 1 / (1 + e)},
    "ReduceLROnPlateau": {"mode": "max", "patience": 1, "factor": 0.5},
}


def torch_rate(name: str, lr: float, epoch: int) -> float:
    """Rate of an epoch, from 1, by torch alone; the metric that a plateau sees never gets better."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=lr)
    schedule = SCHEDULES[name](optimizer)
    optimizer.step()
    for done in range(epoch - 1):
        schedule.step(-float(done)) if name == "ReduceLROnPlateau" else schedule.step()
    return optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize(("name", "named"), [*((name, False) for name in SCHEDULES), *((name, True) for name in NAMED)])
def test_each_epoch_is_trained_with_the_rate_that_its_configuration_has_then(name, named):
    given = (
        {"optimizer": "SGD", "scheduler": (name, NAMED[name])}
        if named
        else {"optimizer": lambda p, c: torch.optim.SGD(p, lr=c["lr"]), "scheduler": lambda o, c: SCHEDULES[name](o)}
    )
    configs = {}

    def note(event):
        if event.kind == "epoch":
            configs[event.trial, event.epoch] = event.config["lr"]

    data = torch.zeros(8, 1, dtype=torch.float64), torch.zeros(8, 1, dtype=torch.float64)
    s = dnnsuite.sweep(
        lambda c: Weight(), {"lr": LogUniform(1e-3, 1.0)}, data, batch_size=8, epochs=9, evaluate=data,
        loss=lambda m, x, y: m(x), measure=lambda m, x, y: {"value": m(x)}, metric="value", callbacks=note,
        algorithm=PBT(4, interval=3, quantile=0.5), **given, **QUIET,
    )  # fmt: skip
    copies = 0
    for trial in s.trials:
        source = dict(trial.inherited)
        copies += len(source)
        for epoch, row in enumerate(trial.history, 1):
            before = s.trials[source.get(epoch - 1, trial.number)]
            moved = (before.history[epoch - 2]["value"] if epoch > 1 else 0.0) - row["value"]
            assert moved == pytest.approx(torch_rate(name, configs[trial.number, epoch], epoch), rel=1e-6)
            assert trial.config_at(epoch)["lr"] == configs[trial.number, epoch]
    assert copies > 2


def test_best_model_configuration_table_and_record_are_of_one_epoch(task, tmp_path):
    late = 0
    for seed in range(2):
        configs = {}

        def note(event, configs=configs):
            if event.kind == "epoch":
                configs[event.trial, event.epoch] = event.config

        out = tmp_path / str(seed)
        s = dnnsuite.sweep(
            lambda c: Scaled(c["scale"]), {"lr": LogUniform(1e-4, 1.0), "scale": Uniform(0.1, 10.0)}, task.train,
            evaluate=task.valid, batch_size=16, epochs=6, metric="loss", algorithm=PBT(6), seed=seed,
            callbacks=note, **{**QUIET, "out": out},
        )  # fmt: skip
        with torch.no_grad():
            again = torch.nn.functional.cross_entropy(s.best_model(task.valid[0]), task.valid[1])
        assert float(again) == pytest.approx(s.best_value, rel=1e-5)
        records = {
            run["trial"]: run for run in map(details_of, (out / "runs" / "trials.jsonl").read_text().splitlines())
        }
        for trial in s.trials:
            trained = configs[trial.number, trial.best[1]]
            late += trained != trial.config
            assert s.table.loc[trial.number, ["lr", "scale"]].to_dict() == trained
            assert records[trial.number]["config"] == trained
        assert s.best_config == configs[s.best_trial, s.trials[s.best_trial].best[1]]
        assert len(results.load(out)) > 0
    assert late  # a member was given other values after its best epoch, or this shows nothing


def details_of(line):
    import json

    return json.loads(line)["details"]


def test_copies_have_the_shapes_and_the_kind_of_optimizer_of_their_source(task):
    def model(config):
        return torch.nn.Sequential(
            torch.nn.Linear(4, config["hidden"]), torch.nn.ReLU(), torch.nn.Linear(config["hidden"], 2)
        )

    def optimizer(parameters, config):
        return getattr(torch.optim, config["kind"])(parameters, lr=config["lr"])

    space = {"lr": LogUniform(1e-3, 1e-1), "hidden": [4, 8, 16], "kind": ["SGD", "Adam", "RMSprop"]}
    s = dnnsuite.sweep(
        model, space, task.train, batch_size=16, epochs=5, optimizer=optimizer, algorithm=PBT(6, quantile=0.5),
        **QUIET,
    )  # fmt: skip
    assert set(s.table["status"]) == {"done"}, s.table["message"].tolist()
    copies = 0
    for trial in s.trials:
        for epoch, source in trial.inherited:
            copies += 1
            own, theirs = trial.config_at(epoch + 1), s.trials[source].config_at(epoch)
            assert (own["hidden"], own["kind"]) == (theirs["hidden"], theirs["kind"])
    assert copies
    assert len({(t.config_at(1)["hidden"], t.config_at(1)["kind"]) for t in s.trials}) > 1


@pytest.mark.parametrize("algorithm", [PBT(4, quantile=0.5), Random(4)])
def test_choices_of_tensors_and_of_momentum(task, algorithm):
    weights = [torch.tensor([1.0, 1.0]), torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])]

    def model(config):
        made = torch.nn.Linear(4, 2)
        made.register_buffer("classes", config["weight"])
        return made

    def loss(model, x, y):
        return torch.nn.functional.cross_entropy(model(x), y, model.classes)

    s = dnnsuite.sweep(
        model, {"weight": Choice(weights), "momentum": [0.0, 0.9], "lr": [0.1, 0.01]}, task.train, loss=loss,
        batch_size=16, epochs=4, optimizer="SGD", algorithm=algorithm, **QUIET,
    )  # fmt: skip
    assert set(s.table["status"]) == {"done"}, s.table["message"].tolist()


class Steep(Weight):
    """A weight whose gradient is a value of the configuration, in a tensor; `seen` is one that training changes."""

    def __init__(self, slope: float, place: str) -> None:
        super().__init__()
        slope, self.place = torch.tensor(slope, dtype=torch.float64), place
        if place == "frozen":
            self.slope = torch.nn.Parameter(slope, requires_grad=False)
        else:
            self.register_buffer("slope", slope)
        self.register_buffer("seen", slope.clone() if place == "changed" else torch.zeros((), dtype=torch.float64))

    def forward(self, x):
        if self.training:
            self.seen += 1
        return self.w * self.slope


@pytest.mark.parametrize("mode", ["hfta", "serial", "concurrent"])
@pytest.mark.parametrize("place", ["buffer", "frozen", "changed"])
def test_a_copy_trains_with_what_its_own_configuration_puts_into_tensors(place, mode):
    data = torch.zeros(8, 1, dtype=torch.float64), torch.zeros(8, 1, dtype=torch.float64)
    s = dnnsuite.sweep(
        lambda c: Steep(c["slope"], place), {"slope": Uniform(1.0, 2.0)}, data, batch_size=8, epochs=4, evaluate=data,
        loss=lambda m, x, y: m(x), measure=lambda m, x, y: {"value": m.w, "seen": m.seen}, metric="value", mode=mode,
        optimizer=("SGD", {"lr": 1.0}), goal="min", algorithm=PBT(4, quantile=0.5), **QUIET,
    )  # fmt: skip
    copies = 0
    for trial in s.trials:
        sources = dict(trial.inherited)
        copies += len(sources)
        for epoch, row in enumerate(trial.history, 1):
            before = s.trials[sources.get(epoch - 1, trial.number)].history[epoch - 2] if epoch > 1 else {}
            assert before.get("value", 0.0) - row["value"] == pytest.approx(trial.config_at(epoch)["slope"])
            begun = trial.config_at(1)["slope"] if place == "changed" else 0.0
            assert row["seen"] == pytest.approx(before.get("seen", begun) + 1)  # what training changes is taken over
    assert copies > 2
