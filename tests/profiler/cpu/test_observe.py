# SPDX-License-Identifier: MIT
"""Steps are observed one by one; an error in one leaves no instrument running."""

import pytest
import torch

from dnnsuite.profiler.cpu import observe_steps

A = torch.randn(16, 16)


def test_each_step_has_its_operators_and_its_time():
    found = observe_steps(lambda: torch.mm(A, A), 3)
    products = found.ops[found.ops["name"] == "aten::mm"]
    assert list(products["step"]) == [0, 1, 2]
    assert set(products["flops"]) == {2 * 16**3}
    assert list(found.steps["step"]) == [0, 1, 2]


def test_after_an_error_steps_can_be_observed_again():
    with pytest.raises(ZeroDivisionError):
        observe_steps(lambda: 1 / 0, 1)
    assert len(observe_steps(lambda: torch.mm(A, A), 1).steps) == 1
