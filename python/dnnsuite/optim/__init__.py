# SPDX-License-Identifier: MIT
"""Optimizers over an array of models: torch's names, order and defaults, hyper-parameters with a value per model.

They have the interface of torch's: `param_groups`, `state`, `add_param_group` and `defaults` may be read and written by
hand, by torch's schedulers and by those of other libraries, also while a StepRunner trains the array.
"""

from ..ops.decay_groups import decay_groups
from . import lr_scheduler
from ._around import SAM, ChainedOptimizer, Lookahead
from ._base import ArrayOptimizer
from ._formulas import ASGD, SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Lion, NAdam, RAdam, RMSprop, Rprop
from ._group import HyperParameters
from ._group import guard_values as guard_values
from ._lbfgs import LBFGS
from ._matrices import LAMB, Adafactor, AdamWScheduleFree, Muon, Prodigy, SGDScheduleFree
from ._partial import PartiallyFused
from ._scaler import GradScaler, clip_grad_norm_, clip_grad_value_, get_total_norm

__all__ = [
    "ASGD", "LAMB", "LBFGS", "SAM", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "AdamWScheduleFree",
    "Adamax", "ArrayOptimizer", "ChainedOptimizer", "GradScaler", "HyperParameters", "Lion", "Lookahead", "Muon",
    "NAdam", "PartiallyFused", "Prodigy", "RAdam", "RMSprop", "Rprop", "SGDScheduleFree", "clip_grad_norm_",
    "clip_grad_value_", "decay_groups", "get_total_norm", "lr_scheduler",
]  # fmt: skip
