# SPDX-License-Identifier: MIT
"""One search by several processes, on any machines that see the directory: `python examples/sweep_shared.py DIRECTORY`.

Start it as often as you like, by hand or by examples/sweep_slurm.sh; one that dies loses only its running rungs.
"""

import sys

import torch
from sklearn.datasets import load_digits

import dnnsuite
from dnnsuite.tuning import Hyperband, LogUniform


def mlp(config):
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


digits = load_digits()
x, y = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)
sweep = dnnsuite.sweep(mlp, {"lr": LogUniform(1e-4, 1e-1)}, (x[:1437], y[:1437]), batch_size=64,
                       evaluate=(x[1437:], y[1437:]), epochs=9, metric="acc", algorithm=Hyperband(),
                       out=sys.argv[1], share=True)  # fmt: skip
print(sweep)
