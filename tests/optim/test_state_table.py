# SPDX-License-Identifier: MIT
"""State as torch's dictionaries hold it: every way to change one is noted."""

import copy

import pytest
import torch

from array_parameters import array_parameters
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument


def made():
    (parameter,) = array_parameters(torch.zeros(2, 3))
    optimizer = optim.Adam([parameter], lr=0.1, B=2)
    parameter.grad = torch.ones(2, 3)
    optimizer.step()
    return optimizer, parameter


ROWS = {
    "set": lambda row: row.__setitem__("note", 1),
    "update": lambda row: row.update({"note": 1}),
    "setdefault": lambda row: row.setdefault("note", 1),
    "joined": lambda row: row.__ior__({"note": 1}),
    "deleted": lambda row: row.__delitem__("exp_avg"),
    "popped": lambda row: row.pop("exp_avg"),
    "popped the last": lambda row: row.popitem(),
    "cleared": lambda row: row.clear(),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_change_of_a_row_is_a_revision(name):
    optimizer, parameter = made()
    row = optimizer.state[parameter]
    before = optimizer.revision
    ROWS[name](row)
    assert optimizer.revision > before


TABLES = {
    "setdefault": lambda table, p: table.setdefault(p, {"note": 1}),
    "joined": lambda table, p: table.__ior__({p: {"note": 1}}),
    "update": lambda table, p: table.update({p: {"note": 1}}),
    "asked for": lambda table, p: table[p].update(note=1),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_row_that_comes_is_a_parameters(name):
    """Whatever the way: a number set in it becomes one per model, and a wrong shape is refused."""
    optimizer, parameter = made()
    optimizer.state.popitem()
    before = optimizer.revision
    TABLES[name](optimizer.state, parameter)
    assert optimizer.revision > before
    assert optimizer.state[parameter]["note"] == 1
    optimizer.state[parameter].setdefault("step", 3)
    assert optimizer.state[parameter]["step"].tolist() == [3.0, 3.0]
    with pytest.raises(InvalidArgument, match="same shape"):
        optimizer.state[parameter].setdefault("exp_avg", torch.zeros(3))


def test_a_copy_is_a_plain_dictionary():
    optimizer, parameter = made()
    row = optimizer.state[parameter]
    assert type(copy.copy(row)) is dict
    assert type(copy.deepcopy(optimizer.state)) is dict
    assert row["step"].tolist() == [1.0, 1.0]


def test_a_whole_row_becomes_one_value_per_model():
    (parameter,) = array_parameters(torch.ones(3, 2))
    optimizer = optim.Adam([parameter], lr=0.1)
    optimizer.state[parameter] = {"step": 3}
    assert torch.equal(optimizer.state[parameter]["step"], torch.full((3,), 3.0, dtype=torch.float64))
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert optimizer.state[parameter]["step"].tolist() == [4.0] * 3
