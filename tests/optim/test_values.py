# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.optim import _values


def test_a_number_is_one_for_all():
    assert _values.as_vector(0.1, 3, "lr").tolist() == [0.1] * 3
    own = torch.tensor([1.0, 2.0], dtype=torch.float64)
    vector = _values.as_vector(own, 2, "lr")
    vector[0] = 5
    assert own.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("value", ["high", [0.1], [[0.1, 0.2]], None])
def test_refuses_what_is_neither_a_number_nor_one_per_model(value):
    with pytest.raises(InvalidArgument, match="lr"):
        _values.as_vector(value, 2, "lr")


def test_ranges():
    for name, good, bad in (("beta1", 0.0, 1.0), ("rho", 1.0, 1.1), ("lr", 0.0, -1e-9), ("etaplus", 1.5, 0.9)):
        _values.check_range(name, torch.tensor([good], dtype=torch.float64))
        with pytest.raises(InvalidArgument, match=f"{name} of model 1"):
            _values.check_range(name, torch.tensor([good, bad], dtype=torch.float64))


def test_picks_slots_and_leaves_fresh_ones_at_zero():
    vector = torch.tensor([1.0, 2.0, 3.0])
    assert _values.pick(vector, [2, None, 0, 2]).tolist() == [3.0, 0.0, 1.0, 3.0]
    assert _values.fill_fresh(vector, [0, None, None], [7.0, 8.0]).tolist() == [1.0, 7.0, 8.0]


def test_indices_and_fresh_values():
    assert _values.check_indices([-1, None, 0], 3) == [2, None, 0]
    for wrong in ([3], [0.5], []):
        with pytest.raises(InvalidArgument):
            _values.check_indices(wrong, 3)
    assert _values.fresh_values("lr", 0.5, 2) == [0.5, 0.5]
    with pytest.raises(InvalidArgument, match="for 2 fresh models"):
        _values.fresh_values("lr", [1.0], 2)
