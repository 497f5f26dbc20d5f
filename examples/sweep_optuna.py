# SPDX-License-Identifier: MIT
"""Optuna chooses and prunes, dnnsuite trains eight trials at once. Needs `dnnsuite[optuna]`; 10 seconds."""

import optuna
import torch
from sklearn.datasets import load_digits

import dnnsuite
from dnnsuite.tuning import Int, LogUniform, OptunaSearch


def mlp(config):
    hidden = 16 * config["blocks"]  # trials of different sizes go into separate arrays
    return torch.nn.Sequential(torch.nn.Linear(64, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))


digits = load_digits()
x, y = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)
study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_startup_trials=8))
sweep = dnnsuite.sweep(mlp, {"lr": LogUniform(1e-4, 1e-1), "blocks": Int(1, 2)}, (x[:1437], y[:1437]),
                       batch_size=64, evaluate=(x[1437:], y[1437:]), epochs=5, metric="acc",
                       algorithm=OptunaSearch(study, trials=16))  # fmt: skip
print(sweep)
print(study.best_params)
