# SPDX-License-Identifier: MIT
"""Learning-rate schedules with each model's own arguments: the names, order and defaults of torch.optim.lr_scheduler.

Every argument that is a number may be a sequence with one number per model, and a model's epochs are its own.
"""

from ._base import LRScheduler
from ._combined import ChainedScheduler, LambdaLR, MultiplicativeLR, ReduceLROnPlateau, SequentialLR
from ._shapes import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    StepLR,
)

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip
