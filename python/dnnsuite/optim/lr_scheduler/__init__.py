# SPDX-License-Identifier: MIT
"""Learning-rate schedules with each model's own arguments: the names, order and defaults of torch.optim.lr_scheduler.

Every argument that is a number may be a sequence with one number per model, and a model's epochs are its own.
"""

from ._base import LRScheduler as LRScheduler
from ._combined import ChainedScheduler as ChainedScheduler
from ._combined import LambdaLR as LambdaLR
from ._combined import MultiplicativeLR as MultiplicativeLR
from ._combined import ReduceLROnPlateau as ReduceLROnPlateau
from ._combined import SequentialLR as SequentialLR
from ._shapes import ConstantLR as ConstantLR
from ._shapes import CosineAnnealingLR as CosineAnnealingLR
from ._shapes import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from ._shapes import CyclicLR as CyclicLR
from ._shapes import ExponentialLR as ExponentialLR
from ._shapes import LinearLR as LinearLR
from ._shapes import MultiStepLR as MultiStepLR
from ._shapes import OneCycleLR as OneCycleLR
from ._shapes import PolynomialLR as PolynomialLR
from ._shapes import StepLR as StepLR

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip
