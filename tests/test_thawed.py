# SPDX-License-Identifier: MIT
"""What a process has frozen, as before a fork, is looked through like all else; the garbage collector waits."""

import gc

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite._thawed import put_off, thawed
from dnnsuite.errors import InvalidArgument

kept = []


@pytest.fixture
def frozen():
    was = gc.get_freeze_count()
    gc.freeze()
    yield
    if not was:
        gc.unfreeze()


@pytest.fixture
def model():
    return torch.nn.Linear(4, 2)


def test_a_search_sees_frozen_objects(model, frozen):
    assert not any(found is model for found in gc.get_objects())
    with thawed():
        assert any(found is model for found in gc.get_objects())
    assert gc.get_freeze_count()


def test_the_parameters_of_a_frozen_model_are_no_arrays(model, frozen):
    with pytest.raises(InvalidArgument, match="fuse"):
        optim.SGD(model.parameters(), lr=0.1)
    assert gc.get_freeze_count()


def test_a_number_in_a_frozen_list_is_a_plain_one(frozen):
    def losses(array, x):
        each = array(x).square().flatten(1).mean(1)
        kept.append(each.sum().item())
        return each

    array = dnnsuite.fuse([torch.nn.Linear(4, 2) for _ in range(2)])
    x = torch.randn(2, 8, 4)
    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.1), losses, threads=1) as runner:
        for _ in range(6):
            runner.step(x)
    assert {type(value) for value in kept} == {float}


def test_the_collector_waits_until_the_last_lets_it_go():
    with put_off():
        with put_off():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_two_that_overlap_leave_the_collector_on():
    first, second = put_off(), put_off()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off():
    gc.disable()
    try:
        with put_off():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_steps_leave_the_collector_on_also_one_that_is_refused():
    def losses(array, x):
        return array(x).square().flatten(1).mean(1)

    array = dnnsuite.fuse([torch.nn.Linear(4, 2) for _ in range(2)])
    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.1), losses, threads=1) as runner:
        with pytest.raises(InvalidArgument):
            runner.step(torch.randn(3, 8, 4))
        assert gc.isenabled()
        for _ in range(4):
            runner.step(torch.randn(2, 8, 4))
            assert gc.isenabled()
