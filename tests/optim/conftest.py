# SPDX-License-Identifier: MIT
"""Models and batches that optimizers are compared on."""

import pytest
import torch

from helpers import make_models
from one_models import STEPS, B, make


@pytest.fixture
def models():
    return make_models(make, B, torch.float64)


@pytest.fixture
def batches():
    return torch.randn(STEPS, B, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
