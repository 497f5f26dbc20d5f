# SPDX-License-Identifier: MIT
"""Recorders of the program's own, told before they start."""

import pytest
import torch
from torch.autograd import profiler as legacy

from dnnsuite.profiler.cpu._foreign import ForeignRecorders


@pytest.mark.parametrize("make", [torch.profiler.profile, legacy.profile], ids=["torch.profiler", "autograd"])
def test_the_start_of_another_recorder_is_told_and_torch_is_left_as_it_was(make):
    told, before = [], legacy.profile.__init__
    foreign = ForeignRecorders(lambda: told.append(True))
    foreign.watch()
    with make():
        torch.ones(2).sum()
    assert told
    foreign.leave()
    foreign.leave()
    assert legacy.profile.__init__ is before
    count = len(told)
    with make():
        pass
    assert len(told) == count
