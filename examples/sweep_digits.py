# SPDX-License-Identifier: MIT
"""24 small CNNs on scikit-learn's digits: a grid with early stopping. `python examples/sweep_digits.py`, 15 seconds."""

import torch
from sklearn.datasets import load_digits

import dnnsuite


def cnn(config):
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Dropout(config["dropout"]), torch.nn.Linear(256, 10),
    )  # fmt: skip


digits = load_digits()
x, y = torch.tensor(digits.images).float().unsqueeze(1) / 16, torch.tensor(digits.target)
space = {"lr": [3e-3, 1e-3, 3e-4, 1e-4], "weight_decay": [0.0, 1e-2], "dropout": [0.0, 0.2, 0.4]}
sweep = dnnsuite.sweep(cnn, space, (x[:1437], y[:1437]), batch_size=64, evaluate=(x[1437:], y[1437:]),
                       optimizer="AdamW", epochs=6, metric="acc", patience=2)  # fmt: skip
print(sweep)
best = sweep.best_model  # an ordinary torch module
