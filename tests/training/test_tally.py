# SPDX-License-Identifier: MIT
import math

import pytest
import torch

from dnnsuite.training.tally import Tally


def test_means_are_over_samples_not_over_batches():
    tally = Tally(("acc1",))
    tally.add(torch.tensor(2.0), torch.tensor([3.0]), 6)
    tally.add(torch.tensor(5.0), torch.tensor([2.0]), 2)
    tally.add(torch.tensor(9.0), torch.tensor([1.0]), 0)  # keeps in step only
    assert len(tally) == 3
    assert tally.collect() == math.inf
    assert len(tally) == 0
    assert tally.means(tally.totals) == {"loss": pytest.approx(22 / 8), "acc1": pytest.approx(5 / 8)}


def test_the_first_loss_that_is_not_finite_is_told():
    tally = Tally(())
    for loss in (1.0, 2.0, math.nan, math.inf):
        tally.add(torch.tensor(loss), torch.zeros(0), 1)
    assert tally.collect() == 2
    assert tally.collect() == math.inf
