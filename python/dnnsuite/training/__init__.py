# SPDX-License-Identifier: MIT
"""Training runs over epochs, with schedules, validation, checkpoints and metrics, on one device or several.

`Experiment` describes a run, and `run` trains it in a directory. `configuration` reads a configuration of SC20 or from
a file of the user. `ExperimentArray` describes several experiments that differ in hyper-parameters and are trained as
one fused array; `varied` makes their settings. Names are imported when they are first used, so that a command checks
its arguments before it imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy
from .settings import SHIPPED as SHIPPED
from .settings import configuration as configuration
from .settings import configurations as configurations

if TYPE_CHECKING:
    from .array import VARYING, ExperimentArray, array_of, data_of, varied
    from .experiment import Experiment, ProfileWindow, TopK, experiment_of
    from .experiment_run import Trained, run
    from .history import read_metrics
    from .job import array_of_job, experiment_of_job, values_of_job
    from .saver import BadCheckpoint, load_model
    from .schedules import PerEpoch, SteppedWarmup, WarmupPlateau
    from .settings import Settings
    from .sources import Data, find_data
    from .validation import evaluate

__all__ = [
    "SHIPPED", "VARYING", "BadCheckpoint", "Data", "Experiment", "ExperimentArray", "PerEpoch", "ProfileWindow",
    "Settings", "SteppedWarmup", "TopK", "Trained", "WarmupPlateau", "array_of", "array_of_job", "configuration",
    "configurations", "data_of", "evaluate", "experiment_of", "experiment_of_job", "find_data", "load_model",
    "read_metrics", "run", "values_of_job", "varied",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        ".array": "ExperimentArray VARYING array_of data_of varied",
        ".experiment": "Experiment ProfileWindow TopK experiment_of",
        ".experiment_run": "Trained run",
        ".history": "read_metrics",
        ".job": "array_of_job experiment_of_job values_of_job",
        ".saver": "BadCheckpoint load_model",
        ".schedules": "PerEpoch SteppedWarmup WarmupPlateau",
        ".settings": "Settings",
        ".sources": "Data find_data",
        ".validation": "evaluate",
    },
)
