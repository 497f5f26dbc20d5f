# SPDX-License-Identifier: MIT
"""Optuna's samplers and pruners through our adapter, against Optuna's own loop."""

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning import OptunaSearch, Uniform

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.WARNING)

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


SAMPLERS = {
    "random": optuna.samplers.RandomSampler,
    "tpe": lambda seed: optuna.samplers.TPESampler(n_startup_trials=4, seed=seed),
}


@pytest.mark.parametrize("sampler", list(SAMPLERS))
def test_the_same_trials_as_optunas_own_loop(sampler):
    def study():
        pruner = optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=1)
        return optuna.create_study(sampler=SAMPLERS[sampler](seed=3), pruner=pruner)

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


def test_bad_studies():
    with pytest.raises(InvalidArgument, match="takes a study"):
        OptunaSearch("study")
    with pytest.raises(InvalidArgument, match="2 objectives"):
        OptunaSearch(optuna.create_study(directions=["minimize", "maximize"]))
    with pytest.raises(InvalidArgument, match="give goal='max'"):
        swept(optuna.create_study(direction="maximize"), 2)
