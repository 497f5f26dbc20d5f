# SPDX-License-Identifier: MIT
"""`dnnsuite.sweep` against a loop over separate torch models, in every mode and width, and with bad input."""

import json
import math
import sys

import pytest
import torch

import dnnsuite
from dnnsuite.errors import Error, InvalidArgument
from dnnsuite.tuning import ASHA, PBT, Choice, Hyperband, LogUniform, Random, Uniform


def mlp(config, dtype=torch.float32):
    hidden = config.get("hidden", 8)
    return torch.nn.Sequential(
        torch.nn.Linear(4, hidden),
        torch.nn.Tanh(),
        torch.nn.Dropout(config.get("dropout", 0.0)),
        torch.nn.Linear(hidden, 2),
    ).to(dtype)


def swept(task, space, train=None, **options):
    given = {"evaluate": task.valid, "epochs": 2, "out": False, "quiet": True, **options}
    return dnnsuite.sweep(mlp, space, task.loader() if train is None else train, **given)


GRID = {"lr": [0.1, 0.01], "weight_decay": [0.0, 0.1], "hidden": [6, 8]}


def by_hand(task, configs, epochs, seed=0):
    """(losses by trial and epoch, the best trial's weights): a loop as most people write it, in float64."""
    x, y = task.valid
    history, best = [], (math.inf, None)
    for number, config in enumerate(configs):
        torch.manual_seed(seed + number)
        model = mlp(config).double()
        optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"], weight_decay=config["weight_decay"])
        loader = task.loader()
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for epoch in range(epochs):
            torch.manual_seed(seed + epoch)
            for inputs, targets in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs.double()), targets).backward()
                optimizer.step()
            schedule.step()
            with torch.no_grad():
                loss = torch.nn.functional.cross_entropy(model(x.double()), y).item()
            history.append((number, epoch + 1, loss))
            if loss < best[0]:
                best = loss, {name: value.clone() for name, value in model.state_dict().items()}
    return history, best[1]


def test_a_loop_over_torch_models_gives_the_same_table_and_best_model(task):
    def loss(model, x, y):
        return torch.nn.functional.cross_entropy(model(x.double()), y)

    sweep = dnnsuite.sweep(
        lambda config: mlp(config).double(), GRID, task.loader(), evaluate=task.valid, loss=loss, epochs=3, width=3,
        scheduler=("ExponentialLR", {"gamma": 0.5}), out=False, quiet=True,
    )  # fmt: skip
    configs = [dict(zip(GRID, (lr, decay, hidden), strict=True))
               for lr in GRID["lr"] for decay in GRID["weight_decay"] for hidden in GRID["hidden"]]  # fmt: skip
    history, weights = by_hand(task, configs, 3)
    assert list(zip(sweep.history["trial"], sweep.history["epoch"], strict=True)) == [row[:2] for row in history]
    assert sweep.history["loss"].tolist() == pytest.approx([row[2] for row in history], rel=1e-10)
    assert sweep.best_trial == min(history, key=lambda row: row[2])[0]
    assert sweep.best_config == configs[sweep.best_trial]
    for name, value in sweep.best_model.state_dict().items():
        torch.testing.assert_close(value, weights[name], rtol=1e-9, atol=1e-12)
    assert sweep.table.loc[sweep.best_trial, "loss"] == sweep.best_value == sweep.table["loss"].min()
    assert set(sweep.table["status"]) == {"done"}


def test_history_is_the_same_to_the_bit_in_every_mode_and_width(task):
    space = {**GRID, "dropout": [0.0, 0.3]}
    histories = [swept(task, space, width=width).history for width in (1, 3, 16)]
    histories.append(swept(task, space, mode="serial").history)
    histories.append(swept(task, space, mode="concurrent", width=2).history)
    for history in histories[1:]:
        assert history.equals(histories[0])


@pytest.mark.parametrize("algorithm", [Hyperband(), PBT(6)])
def test_rungs_that_continue_are_the_same_at_every_width(task, algorithm):
    space = {
        "lr": LogUniform(1e-3, 0.3),
        "dropout": Uniform(0, 0.5),
        "hidden": Choice(6, 8) if isinstance(algorithm, Hyperband) else 8,
    }
    first = swept(task, space, algorithm=algorithm, epochs=3, width=2)
    second = swept(task, space, algorithm=algorithm, epochs=3, width=5)
    third = swept(task, space, algorithm=algorithm, epochs=3, width=2, mode="concurrent")
    assert first.history.equals(second.history)
    assert first.history.equals(third.history)
    assert first.table.drop(columns="seconds").equals(second.table.drop(columns="seconds"))


def test_rungs_that_continue_train_as_one_run_does(task):
    sweep = swept(
        task,
        {"lr": LogUniform(1e-3, 0.3)},
        algorithm=Hyperband(),
        epochs=9,
        width=4,
        scheduler=("CosineAnnealingLR", {"T_max": 9}),
    )
    longest = sweep.table["epochs"].idxmax()
    config = {"lr": sweep.table.loc[longest, "lr"], "seed": int(longest)}
    alone = swept(task, [config], epochs=9, scheduler=("CosineAnnealingLR", {"T_max": 9}))
    mine = sweep.history[sweep.history["trial"] == longest]["loss"].tolist()
    assert len(mine) == 9
    assert mine == alone.history["loss"].tolist()
    assert sweep.epochs < sweep.epochs_from_scratch
    assert f"{sweep.epochs_from_scratch - sweep.epochs} fewer than from scratch" in sweep.describe()


class Bowl(torch.nn.Module):
    """A parameter that begins at x and is drawn towards 0: the trial that begins the nearest is the best."""

    def __init__(self, x):
        super().__init__()
        self.at = torch.nn.Parameter(torch.full((1, 1), x, dtype=torch.float64))

    def forward(self, inputs):
        return inputs.double() @ self.at


@pytest.mark.parametrize("algorithm", [Random(6), Hyperband(), ASHA(6, parallel=3)])
def test_the_best_of_a_quadratic_in_every_mode(algorithm):
    data = torch.ones(4, 1), torch.zeros(4, 1)
    tables = []
    for mode in ("hfta", "serial", "concurrent"):
        sweep = dnnsuite.sweep(
            lambda config: Bowl(config["x"]), {"x": Uniform(-3, 3)}, data, evaluate=data, batch_size=4, mode=mode,
            loss=lambda model, x, y: (model(x) - y).square().mean(), optimizer=("SGD", {"lr": 0.1}), epochs=3,
            algorithm=algorithm, out=False, quiet=True, width=2,
        )  # fmt: skip
        assert sweep.best_trial == sweep.table["x"].abs().idxmin()
        epochs = sweep.table.loc[sweep.best_trial, "epochs"]
        assert epochs == 3
        assert sweep.best_value == pytest.approx((sweep.best_config["x"] * 0.8**3) ** 2, rel=1e-12)
        tables.append(sweep.table.drop(columns="seconds"))
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])


def test_batch_sizes_and_data_of_their_own(task):
    configs = [{"lr": 0.1, "batch_size": size} for size in (8, 16, 8)]
    sweep = swept(task, configs, train=task.train)
    assert len(sweep.history) == 6
    loaders = [task.loader(8), task.loader(14), task.loader(8)]
    listed = swept(task, [{"lr": 0.1}] * 3, train=loaders)
    assert listed.history["loss"][:2].tolist() == sweep.history["loss"][:2].tolist()
    made = swept(
        task,
        [{"lr": 0.1, "part": part} for part in (0, 1)],
        train=lambda c: torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(*(t[c["part"] :: 2] for t in task.train)), 7
        ),
    )
    assert len(made.history) == 4


class Fails(torch.nn.Module):
    """A model that is well, raises, or becomes NaN, by its configuration."""

    def __init__(self, fate):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.fate = fate
        if fate == "factory":
            raise RuntimeError("no such layer")

    def forward(self, x):
        if self.fate == "forward" and self.training:
            raise ValueError("a bad forward")
        return self.layer(x) * (math.nan if self.fate == "nan" else 1.0)


def test_each_failure_ends_its_own_trial_alone(task):
    fates = ["well", "nan", "well", "forward", "factory", "well"]
    configs = [{"fate": fate, "lr": 0.1} for fate in fates]
    options = {"evaluate": task.valid, "epochs": 2, "out": False, "quiet": True}
    sweep = dnnsuite.sweep(lambda c: Fails(c["fate"]), configs, task.loader(), **options)
    assert sweep.table["status"].tolist() == ["done", "failed", "done", "failed", "failed", "done"]
    assert "nan" in sweep.table["message"][1]
    assert "a bad forward" in sweep.table["message"][3]
    assert "no such layer" in sweep.table["message"][4]
    alone = dnnsuite.sweep(lambda c: Fails(c["fate"]), configs, task.loader(), mode="serial", **options)
    assert sweep.history.equals(alone.history)
    with pytest.raises(Error, match=r"all 2 trials failed.*a bad forward"):
        dnnsuite.sweep(lambda c: Fails(c["fate"]), [configs[3]] * 2, task.loader(), **options)


def test_memory_that_runs_out_halves_the_width(task, capsys):
    class Greedy:
        """Batches of which the first time there is no room for any."""

        def __init__(self):
            self.passes = 0

        def __iter__(self):
            self.passes += 1
            if self.passes == 1:
                raise MemoryError("out of memory")
            yield task.train

    sweep = swept(task, {"lr": [0.1, 0.2, 0.3, 0.4, 0.5]}, train=Greedy(), width=4)
    assert "memory ran out with 4 models at once; the sweep continues with 2" in capsys.readouterr().err
    assert set(sweep.table["status"]) == {"done"}


def test_records_tell_how_many_audits_passed(task, tmp_path):
    """Of replayed steps of the array that a trial trains in, the tenth is run both ways."""
    found = swept(task, {"lr": [0.1, 0.01]}, epochs=16 // len(task.loader()) + 4, out=tmp_path / "out")
    records = [json.loads(line) for line in (tmp_path / "out" / "runs" / "trials.jsonl").read_text().splitlines()]
    assert len(records) == 2
    assert [record["details"]["audits_passed"] for record in records] == [trial.audits_passed for trial in found.trials]
    assert all(trial.audits_passed >= 1 for trial in found.trials)


def test_patience_ends_a_trial_early(task):
    sweep = swept(task, [{"lr": 0.0}, {"lr": 0.003}], epochs=6, patience=2)
    assert sweep.table["status"].tolist() == ["stopped", "done"]
    assert sweep.table["epochs"].tolist() == [3, 6]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"space": {}}, "the space is empty"),
        ({"space": []}, "the space is empty"),
        ({"space": {"lr": []}}, "lr has no value"),
        ({"metric": "accc"}, "did you mean 'acc'"),
        ({"space": {"lr": [0.1], "hiden": [1, 2]}}, "'hiden' varies between trials, but nothing uses it"),
        ({"optimizer": "Adamm"}, "did you mean 'Adam'"),
        ({"epochs": 0}, "epochs is a whole number"),
        ({"mode": "hfa"}, "did you mean 'hfta'"),
        ({"algorithm": "hyperband"}, "give an instance of a class of dnnsuite.tuning"),
        ({"train": 3}, "give a DataLoader"),
        ({"width": 0}, "width is a whole number"),
        ({"goal": "least"}, "give min or max"),
        ({"trials": 0}, "trials is a whole number"),
        ({"space": [{"lr": 0.1}], "trials": 3}, "beside a list of 1 configurations"),
        ({"space": 3}, "the space is a int"),
        ({"train": [[]] * 3}, "train has 3 sources for 2 trials"),
        ({"device": "gpu"}, "give 'cpu' or 'cuda'"),
        ({"autocast": "bf16"}, "give a type of torch.s"),
        ({"space": [{"lr": 0.1}] * 3, "algorithm": Hyperband(), "epochs": 3}, "begins 5 trials, and there are 3"),
    ],
)
def test_bad_input_is_one_sentence(task, change, message):
    options = {"space": {"lr": [0.1, 0.2]}, **change}
    with pytest.raises(InvalidArgument, match=message):
        swept(task, options.pop("space"), **options)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda model, x, y: model(x), r"the loss of one model has the shape \[16, 2\]"),
        (lambda model, x, y: model(x).sum().item(), "is a float: return a tensor"),
    ],
)
def test_a_loss_that_is_no_number(task, loss, message):
    with pytest.raises(Error, match=message):
        swept(task, [{"lr": 0.1}], loss=loss)


def test_functions_for_evaluation_and_optimizer(task):
    x, y = task.valid

    def accuracy(model):
        return {"right": (model(x).argmax(1) == y).float().mean()}

    def adam(parameters, config):
        return torch.optim.Adam(parameters, lr=config["rate"])

    options = {"evaluate": accuracy, "metric": "right", "goal": "max", "width": 2}
    sweep = swept(task, {"rate": [0.1, 0.01, 0.001]}, optimizer=adam, **options)
    same = swept(task, {"lr": [0.1, 0.01, 0.001]}, optimizer=torch.optim.Adam, **options)
    assert sweep.history.equals(same.history)
    assert sweep.best_value == sweep.table["right"].max()


def test_random_draws_the_same_from_a_seed(task):
    space = {"lr": LogUniform(1e-3, 1e-1)}
    first, second = (swept(task, space, trials=3, seed=4, epochs=1).table for _ in range(2))
    assert first["lr"].tolist() == second["lr"].tolist()
    assert swept(task, space, algorithm=Random(3), seed=5, epochs=1).table["lr"].tolist() != first["lr"].tolist()


def test_a_measure_that_asks_for_numbers_leaves_training_as_it_is(task):
    def measure(model, x, y):
        output = model(x)
        wrong = (output.argmax(1) != y).sum().item()  # runs one model at a time
        return {"loss": torch.nn.functional.cross_entropy(output, y), "wrong": wrong}

    space, options = {"lr": LogUniform(1e-3, 0.3)}, {"algorithm": Hyperband(), "epochs": 3}
    plain = swept(task, space, task.loader(8), width=2, **options).history
    histories = [swept(task, space, task.loader(8), width=width, measure=measure, **options).history
                 for width in (1, 2, 16)]  # fmt: skip
    for history in histories:
        assert history["train_loss"].equals(plain["train_loss"])
        assert history.equals(histories[0])


class Counted:
    """A task whose object changes from epoch to epoch, and whose methods are loss and measure."""

    def __init__(self, task):
        self.task, self.epoch = task, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(self.task.loader())

    def loss(self, model, x, y):
        return torch.nn.functional.cross_entropy(model(x), y)

    def measure(self, model, x, y):
        return {"loss": self.loss(model, x, y)}


def test_methods_of_an_object_that_changes(task):
    histories = []
    for width in (1, 2, 16):
        counted = Counted(task)
        options = {"loss": counted.loss, "measure": counted.measure, "algorithm": Hyperband(), "epochs": 3}
        histories.append(swept(task, {"lr": LogUniform(1e-3, 0.3)}, counted, width=width, **options).history)
    for history in histories[1:]:
        assert history.equals(histories[0])


class Line(torch.nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.line = torch.nn.Linear(4, 2)
        torch.nn.init.constant_(self.line.bias, slope)

    def forward(self, x):
        return self.line(x)


def test_a_later_sweep_of_equal_models_records_nothing():
    """A step's code reaches nothing of the sweep that runs it: what it reaches is read in every step."""
    data = torch.randn(24, 4), torch.randint(2, (24,))
    calls = []

    def count(frame, event, argument):  # unseen by a runner's guards
        calls[-1] += event == "call" and frame.f_code is Line.forward.__code__

    for _ in range(2):
        calls.append(0)
        configs = [{"slope": 0.1 * number} for number in range(3)]
        options = {"batch_size": 8, "epochs": 3, "threads": 1, "out": False, "quiet": True}
        sys.setprofile(count)
        try:
            dnnsuite.sweep(lambda config: Line(config["slope"]), configs, data, **options)
        finally:
            sys.setprofile(None)
    assert calls[0] > 0
    assert calls[1] == 0
