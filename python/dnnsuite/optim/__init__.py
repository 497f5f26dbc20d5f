# SPDX-License-Identifier: MIT
"""Optimizers over an array of models: torch's names, order and defaults, hyper-parameters with a value per model."""

from . import lr_scheduler as lr_scheduler
from ._adadelta import Adadelta as Adadelta
from ._adam import Adam as Adam
from ._adamw import AdamW as AdamW
from ._base import ArrayOptimizer as ArrayOptimizer
from ._sgd import SGD as SGD

__all__ = ["SGD", "Adadelta", "Adam", "AdamW", "ArrayOptimizer", "lr_scheduler"]
