# SPDX-License-Identifier: MIT
"""Training runs with epochs: schedule, validation, checkpoints, metrics; on one device or several.

`Experiment` describes a run, `run` trains it in a directory; `configuration` reads one of SC20's, or of a user's file.
"""

from .checkpoints import BadCheckpoint as BadCheckpoint
from .checkpoints import load_model as load_model
from .configurations import SHIPPED as SHIPPED
from .configurations import configuration as configuration
from .configurations import configurations as configurations
from .experiment import Experiment as Experiment
from .experiment import ProfileWindow as ProfileWindow
from .experiment import experiment_of as experiment_of
from .history import read_metrics as read_metrics
from .metrics import TopK as TopK
from .run import Trained as Trained
from .run import run as run
from .schedules import PerEpoch as PerEpoch
from .schedules import SteppedWarmup as SteppedWarmup
from .schedules import WarmupPlateau as WarmupPlateau
from .settings import Settings as Settings
from .sources import Data as Data
from .sources import find_data as find_data

__all__ = [
    "SHIPPED",
    "BadCheckpoint",
    "Data",
    "Experiment",
    "PerEpoch",
    "ProfileWindow",
    "Settings",
    "SteppedWarmup",
    "TopK",
    "Trained",
    "WarmupPlateau",
    "configuration",
    "configurations",
    "experiment_of",
    "find_data",
    "load_model",
    "read_metrics",
    "run",
]
