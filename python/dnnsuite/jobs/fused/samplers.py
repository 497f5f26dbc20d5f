# SPDX-License-Identifier: MIT
"""HFTA's ranges of hyperparameters, which several workloads share."""

from __future__ import annotations

import random

from ..workload import Made

# Of cards: deviations from HFTA's code.
DECLARED = "one plain model is declared, and fused by the library: HFTA's code has a fused form written by hand"
ITERATIONS = "the number of iterations asked for is made: HFTA's epochs end with the data set"

ADADELTA = Made("Adadelta", {"lr": "lr"})
ADAM = Made("Adam", {"lr": "lr", "betas": ("beta1", "beta2"), "weight_decay": "weight_decay"})
STEPS = Made("StepLR", {"step_size": "step_size", "gamma": "gamma"})

# The middles of the ranges.
ADADELTA_MIDDLE = {"lr": 1.0, "gamma": 0.7, "step_size": 10}
ADAM_MIDDLE = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "gamma": 0.5, "step_size": 50}

# Of presets: a default protocol as it is on a GPU, and MobileNet's dry runs.
ON_CUDA = {"iters_per_epoch": 50, "plan": None, "max_num_Bs": 6, "budget_s": 180.0}
LONG_SEARCH = {mode: {"dry_run_iters_per_epoch": 200} for mode in ("concurrent", "mps", "mig", "hfta")}


def adadelta(generator: random.Random) -> dict[str, float]:
    """Draw the hyperparameters of a language model, from HFTA's ranges."""
    return {
        "lr": generator.uniform(0.1, 10.0),
        "gamma": generator.uniform(0.3, 0.99),
        "step_size": int(generator.uniform(3, 20)),
    }


def adam(generator: random.Random) -> dict[str, float]:
    """Draw the hyperparameters of a MobileNet or PointNet, from HFTA's ranges."""
    return {
        "lr": generator.uniform(1e-4, 3e-3),
        "beta1": generator.uniform(0.8, 0.99),
        "beta2": generator.uniform(0.9, 0.9999),
        "weight_decay": generator.uniform(0.0, 0.3),
        "gamma": generator.uniform(0.0, 0.5),
        "step_size": 10 * generator.randint(1, 10),
    }
