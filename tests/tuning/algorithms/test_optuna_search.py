# SPDX-License-Identifier: MIT
"""Optuna's samplers and pruners through our adapter, against Optuna's own loop."""

import contextlib
import math
import warnings

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning import Choice, Decision, Int, LogUniform, OptunaSearch, Setting, Uniform

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.WARNING)
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

SPACE = {"x": Uniform(-3, 3), "lr": LogUniform(1e-3, 1e-1), "layers": Int(1, 4)}
GRID = {"x": [-2.0, 0.5, 1.0], "lr": [0.01, 0.1], "layers": [1, 3]}
SAMPLERS = {
    "random": lambda: optuna.samplers.RandomSampler(seed=3),
    "tpe": lambda: optuna.samplers.TPESampler(n_startup_trials=4, seed=3),
    "tpe, multivariate": lambda: optuna.samplers.TPESampler(n_startup_trials=4, seed=3, multivariate=True, group=True),
    "qmc": lambda: optuna.samplers.QMCSampler(seed=3, scramble=True),
    "cma-es": lambda: optuna.samplers.CmaEsSampler(n_startup_trials=2, seed=3),
    "grid": lambda: optuna.samplers.GridSampler(GRID, seed=3),
}
NOP = optuna.pruners.NopPruner
MEDIAN = optuna.pruners.MedianPruner
PRUNERS = {
    "median": lambda: MEDIAN(n_startup_trials=2, n_warmup_steps=1),
    "percentile": lambda: optuna.pruners.PercentilePruner(40.0, n_startup_trials=2),
    "halving": lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
    "hyperband": lambda: optuna.pruners.HyperbandPruner(min_resource=1, max_resource=8, reduction_factor=2),
    "threshold": lambda: optuna.pruners.ThresholdPruner(lower=-4.0, upper=4.0),
    "patient": lambda: optuna.pruners.PatientPruner(MEDIAN(n_startup_trials=2), patience=1),
    "wilcoxon": lambda: optuna.pruners.WilcoxonPruner(p_threshold=0.2, n_startup_steps=3),
}


def values(config, epochs):
    """Values after each epoch of a trial: they fall at a rate of the trial's own, and not in step with the others."""
    x = config["x"]
    for epoch in range(epochs):
        x -= 4 * config["lr"] * config["layers"] * x
        yield x * x + 0.3 * math.sin(5 * epoch + 7 * config["x"])


def own(study, trials, epochs, maximize):
    """Optuna's loop, with a report per epoch."""

    def objective(trial):
        config = {
            "x": trial.suggest_float("x", -3, 3),
            "lr": trial.suggest_float("lr", 1e-3, 1e-1, log=True),
            "layers": trial.suggest_int("layers", 1, 4),
        }
        for epoch, value in enumerate(values(config, epochs), 1):
            found = -value if maximize else value
            trial.report(found, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return found

    study.optimize(objective, n_trials=trials)


def played(study, trials, epochs, maximize):
    """The same search by the adapter, as a sweep plays it."""
    search = OptunaSearch(study, trials, parallel=1)
    search.begin(Setting(SPACE, (), epochs, 0, maximize))
    while (order := search.next()) is not None:
        for epoch, value in enumerate(values(order.config, epochs), 1):
            if search.report(order.trial, epoch, value) is not Decision.GO:
                break


@pytest.mark.parametrize(
    ("sampler", "pruner"),
    [*((sampler, "median") for sampler in SAMPLERS), *(("tpe", pruner) for pruner in PRUNERS if pruner != "median")],
)
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_suggestions_and_decisions_are_those_of_optunas_own_loop(sampler, pruner, direction):
    if sampler == "cma-es":
        pytest.importorskip("cmaes")

    def study():
        return optuna.create_study(
            sampler=SAMPLERS[sampler](), pruner=PRUNERS[pruner](), study_name="s", direction=direction
        )

    trials, maximize = 12, direction == "maximize"
    one, other = study(), study()
    own(one, trials, 8, maximize)
    played(other, trials, 8, maximize)
    for mine, theirs in zip(other.trials, one.trials, strict=True):
        assert (mine.params, mine.state, mine.value) == (theirs.params, theirs.state, theirs.value)
        assert mine.intermediate_values == theirs.intermediate_values
    assert {trial.state.name for trial in one.trials} == {"COMPLETE", "PRUNED"}


X, Y = torch.ones(4, 1), torch.zeros(4, 1)
EPOCHS = 4


class Bowl(torch.nn.Module):
    """A parameter that starts at x; each step takes it towards 0."""

    def __init__(self, x):
        super().__init__()
        self.at = torch.nn.Parameter(torch.full((1, 1), x, dtype=torch.float64))

    def forward(self, inputs):
        return inputs.double() @ self.at


def loss(model, x, y):
    return (model(x) - y).square().mean()


def own_loop(study, trials):
    """The loop of Optuna's documentation, with a report per epoch."""

    def objective(trial):
        x = trial.suggest_float("x", -3, 3)
        for epoch in range(1, EPOCHS + 1):
            x -= 0.1 * 2 * x
            value = x * x
            trial.report(value, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    study.optimize(objective, n_trials=trials)


def swept(study, trials, out=False, **options):
    return dnnsuite.sweep(
        lambda config: Bowl(config["x"]), {"x": Uniform(-3, 3)}, (X, Y), evaluate=(X, Y), batch_size=4, loss=loss,
        optimizer=("SGD", {"lr": 0.1}), epochs=EPOCHS, algorithm=OptunaSearch(study, trials, parallel=1), out=out,
        quiet=True, **options,
    )  # fmt: skip


def test_a_sweep_makes_the_trials_of_optunas_own_loop():
    def study():
        pruner = optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=1)
        return optuna.create_study(sampler=SAMPLERS["tpe"](), pruner=pruner)

    one, other = study(), study()
    own_loop(one, 10)
    sweep = swept(other, 10)
    assert [t.params for t in other.trials] == [t.params for t in one.trials]
    assert [t.state for t in other.trials] == [t.state for t in one.trials]
    assert {t.state.name for t in one.trials} == {"COMPLETE", "PRUNED"}
    assert sweep.best_trial == one.best_trial.number
    assert sweep.best_value == pytest.approx(one.best_value, rel=1e-9)
    assert (sweep.table["status"] == "pruned").tolist() == [t.state.name == "PRUNED" for t in one.trials]


def test_a_storage_goes_on_after_the_sweep_ended_early(tmp_path):
    def study():
        backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal"))
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(backend), study_name="s", load_if_exists=True,
            sampler=optuna.samplers.RandomSampler(seed=1), pruner=optuna.pruners.NopPruner(),
        )  # fmt: skip

    class Stop(Exception):
        pass

    def stop(event):
        if event.kind == "end" and event.trial == 2:
            raise Stop

    with pytest.raises(Stop):
        swept(study(), 5, out=tmp_path / "out", callbacks=[stop])
    sweep = swept(study(), 5, out=tmp_path / "out", resume=True)
    found = study().trials
    assert [t.state.name for t in found] == ["COMPLETE"] * 5
    assert [t.params["x"] for t in found] == sweep.table["x"].tolist()


@pytest.mark.parametrize(("sampler", "parallel"), [("tpe", 1), ("tpe", 2), ("nsga2", 2), ("qmc", 1)])
def test_a_search_that_dies_goes_on_with_what_an_undisturbed_one_draws_and_decides(tmp_path, sampler, parallel):
    makers = {"nsga2": lambda: optuna.samplers.NSGAIISampler(population_size=4, seed=3),
              "qmc": lambda: optuna.samplers.QMCSampler(seed=3), **SAMPLERS}  # fmt: skip

    def search(name, at=None):
        journal = optuna.storages.journal.JournalFileBackend(str(tmp_path / f"{name}.log"))
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(journal), study_name="s", load_if_exists=True,
            sampler=makers[sampler](), pruner=optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=1),
        )  # fmt: skip

        def note(event):
            if event.kind == "epoch" and (event.trial, event.epoch) == at:
                raise KeyboardInterrupt

        out = tmp_path / name
        return dnnsuite.sweep(
            lambda config: Bowl(config["x"] * config["kind"][0]),
            {"x": Uniform(-3, 3), "kind": Choice((1, 2), (1, float("inf")))}, (X, Y),
            evaluate=(X, Y), batch_size=4, loss=loss, optimizer=("SGD", {"lr": 0.1}), epochs=EPOCHS, out=out,
            algorithm=OptunaSearch(study, 8, parallel), resume=(out / "sweep.json").is_file(), quiet=True,
            callbacks=[note],
        )  # fmt: skip

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what Optuna calls experimental
        whole = search("whole")
        for name, at in (("early", (1, 1)), ("late", (5, 2)), ("twice", (3, 3))):
            for _ in range(2 if name == "twice" else 1):
                with contextlib.suppress(KeyboardInterrupt):
                    search(name, at)
            found = search(name)
            assert found.history.equals(whole.history)
            assert found.table.drop(columns="seconds").equals(whole.table.drop(columns="seconds"))


def test_bad_studies():
    with pytest.raises(InvalidArgument, match="takes a study"):
        OptunaSearch("study")
    with pytest.raises(InvalidArgument, match="2 objectives"):
        OptunaSearch(optuna.create_study(directions=["minimize", "maximize"]))
    with pytest.raises(InvalidArgument, match="give goal='max'"):
        swept(optuna.create_study(direction="maximize"), 2)


def test_a_study_in_memory_that_draws_anew_does_not_go_on(tmp_path):
    def stop(event):
        if event.trial == 1:
            raise KeyboardInterrupt

    def study(seed):
        return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))

    with pytest.raises(KeyboardInterrupt):
        swept(study(1), 3, tmp_path / "out", callbacks=[stop])
    with pytest.raises(InvalidArgument, match=r"trial 0 was .*give the study a storage"):
        swept(study(2), 3, tmp_path / "out", resume=True)
    whole = swept(study(1), 3)
    assert swept(study(1), 3, tmp_path / "out", resume=True).history.equals(whole.history)


def test_functions_are_choices_in_any_storage(tmp_path):
    journal = optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal.log"))
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(journal), sampler=optuna.samplers.RandomSampler(seed=1)
    )
    search = OptunaSearch(study, 12, parallel=12)
    twice = [lambda x: x, lambda x: -x]
    space = {"act": Choice(torch.relu, torch.tanh), "twice": Choice(twice), "lr": Choice(0.1, 0.2)}
    search.begin(Setting(space, (), 1, 0))
    configs = [search.next().config for _ in range(12)]
    assert {config["act"] for config in configs} == {torch.relu, torch.tanh}
    assert {config["twice"] for config in configs} == set(twice)
    assert {config["lr"] for config in configs} == {0.1, 0.2}
    assert all("0x" not in text for trial in study.trials for text in map(str, trial.params.values()))
