# SPDX-License-Identifier: MIT
"""Optimizers over an array of models: torch's names, order and defaults, hyper-parameters with a value per model.

They have the interface of torch's: `param_groups`, `state`, `add_param_group` and `defaults` may be read and written by
hand, by torch's schedulers and by those of other libraries, also while a StepRunner trains the array.
"""

from ..ops.decay_groups import decay_groups as decay_groups
from . import lr_scheduler as lr_scheduler
from ._around import SAM as SAM
from ._around import ChainedOptimizer as ChainedOptimizer
from ._around import Lookahead as Lookahead
from ._base import ArrayOptimizer as ArrayOptimizer
from ._formulas import ASGD as ASGD
from ._formulas import SGD as SGD
from ._formulas import Adadelta as Adadelta
from ._formulas import Adagrad as Adagrad
from ._formulas import Adam as Adam
from ._formulas import Adamax as Adamax
from ._formulas import AdamW as AdamW
from ._formulas import Lion as Lion
from ._formulas import NAdam as NAdam
from ._formulas import RAdam as RAdam
from ._formulas import RMSprop as RMSprop
from ._formulas import Rprop as Rprop
from ._group import HyperParameters as HyperParameters
from ._group import guard_values as guard_values
from ._lbfgs import LBFGS as LBFGS
from ._matrices import LAMB as LAMB
from ._matrices import Adafactor as Adafactor
from ._matrices import AdamWScheduleFree as AdamWScheduleFree
from ._matrices import Muon as Muon
from ._matrices import Prodigy as Prodigy
from ._matrices import SGDScheduleFree as SGDScheduleFree
from ._partial import PartiallyFused as PartiallyFused
from ._scaler import GradScaler as GradScaler
from ._scaler import clip_grad_norm_ as clip_grad_norm_
from ._scaler import clip_grad_value_ as clip_grad_value_
from ._scaler import get_total_norm as get_total_norm

__all__ = [
    "ASGD",
    "LAMB",
    "LBFGS",
    "SAM",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "AdamWScheduleFree",
    "Adamax",
    "ArrayOptimizer",
    "ChainedOptimizer",
    "GradScaler",
    "HyperParameters",
    "Lion",
    "Lookahead",
    "Muon",
    "NAdam",
    "PartiallyFused",
    "Prodigy",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGDScheduleFree",
    "clip_grad_norm_",
    "clip_grad_value_",
    "decay_groups",
    "get_total_norm",
    "lr_scheduler",
]
