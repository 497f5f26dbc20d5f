# SPDX-License-Identifier: MIT
"""Training runs with epochs: schedule, validation, checkpoints, metrics; on one device or several.

`Experiment` describes a run, `run` trains it in a directory; `configuration` reads one of SC20's, or of a user's file.
`ExperimentArray` is several that differ in hyper-parameters, trained as one fused array; `varied` makes their settings.
"""

from .array import ExperimentArray as ExperimentArray
from .checkpoints import BadCheckpoint as BadCheckpoint
from .checkpoints import load_model as load_model
from .configurations import SHIPPED as SHIPPED
from .configurations import configuration as configuration
from .configurations import configurations as configurations
from .experiment import Experiment as Experiment
from .experiment import ProfileWindow as ProfileWindow
from .experiment import experiment_of as experiment_of
from .history import read_metrics as read_metrics
from .job import experiment_of_job as experiment_of_job
from .job import values_of_job as values_of_job
from .metrics import TopK as TopK
from .run import Trained as Trained
from .run import run as run
from .schedules import PerEpoch as PerEpoch
from .schedules import SteppedWarmup as SteppedWarmup
from .schedules import WarmupPlateau as WarmupPlateau
from .settings import Settings as Settings
from .sources import Data as Data
from .sources import find_data as find_data
from .validation import evaluate as evaluate
from .vary import VARYING as VARYING
from .vary import array_of as array_of
from .vary import data_of as data_of
from .vary import varied as varied

__all__ = [
    "SHIPPED", "VARYING", "BadCheckpoint", "Data", "Experiment", "ExperimentArray", "PerEpoch", "ProfileWindow",
    "Settings", "SteppedWarmup", "TopK", "Trained", "WarmupPlateau", "array_of", "configuration", "configurations",
    "data_of", "evaluate", "experiment_of", "experiment_of_job", "find_data", "load_model", "read_metrics", "run",
    "values_of_job", "varied",
]  # fmt: skip
