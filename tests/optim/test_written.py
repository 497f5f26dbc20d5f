# SPDX-License-Identifier: MIT
"""Optimizers written with torch's operators, and Lookahead: an array against B models alone."""

import copy
import io
import math

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from helpers import make_models
from one_models import CASES, B, alone, assert_same, by_hand, losses, make, own


@pytest.mark.parametrize("case", CASES)
def test_every_model_is_trained_as_alone(case, models, batches):
    kind, one, values = CASES[case]
    expected = alone(models, one, values, batches)
    array = dnnsuite.fuse(models)
    by_hand(array, kind(array.parameters(), **values), batches)
    assert_same(array, expected)
    array = dnnsuite.fuse(models)
    with dnnsuite.StepRunner(array, kind(array.parameters(), **values), losses, threads=1, width=B, audit=1) as runner:
        for x in batches:
            runner.step(x).losses()
        assert runner.mode == "captured"
    assert_same(array, expected)


@pytest.mark.parametrize("case", CASES)
def test_state_survives_a_safe_file_and_a_copy(case, models, batches):
    kind, _, values = CASES[case]
    whole, halves = dnnsuite.fuse(models), dnnsuite.fuse(models)
    by_hand(whole, kind(whole.parameters(), **values), batches)
    first = kind(halves.parameters(), **values)
    by_hand(halves, first, batches[:3])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = kind(halves.parameters(), **values)
    second.load_state_dict(torch.load(file, weights_only=True))
    by_hand(halves, second, batches[3:5])
    halves, third = copy.deepcopy((halves, second))
    by_hand(halves, third, batches[5:])
    for a, b in zip(whole.parameters(), halves.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("by_runner", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_models_leave_and_join(case, by_runner, models, batches):
    """One is dropped after three steps and a fresh one added, which has the values of the first."""
    kind, one, values = CASES[case]
    array, new = dnnsuite.fuse(models), make_models(make, B + 1, torch.float64)[-1]
    optimizer = kind(array.parameters(), **values)
    fresh = own(values, 0)
    for pair, names in optimizer.pairs.items():
        if pair in fresh:
            fresh |= zip(names, fresh.pop(pair), strict=True)
    fresh = {name: value for name, value in fresh.items() if name in optimizer.per_model}
    for name in {"beta3", "d_coef"} & set(optimizer.per_model) - set(fresh):
        fresh[name] = float(optimizer.param_groups[0][name][0])

    def train(steps):
        if not by_runner:
            by_hand(array, optimizer, steps)
            return
        with dnnsuite.StepRunner(array, optimizer, losses, threads=1, width=B, audit=1) as runner:
            for x in steps:
                runner.step(x).losses()

    train(batches[:3])
    array.drop(1, optimizer)
    array.append(copy.deepcopy(new), optimizer, **fresh)
    order = [0, 2, 1]
    train(batches[3:][:, order])
    expected = alone(models, one, values, batches)
    (joined,) = alone([new], one, {name: own(values, 0)[name] for name in values}, batches[3:, 1:2])
    assert_same(array, [expected[0], expected[2], joined])


@pytest.mark.parametrize("case", CASES)
def test_a_frozen_model_keeps_every_bit(case, models, batches):
    kind, one, values = CASES[case]
    array = dnnsuite.fuse(models)
    optimizer = kind(array.parameters(), **values)
    by_hand(array, optimizer, batches[:2])
    optimizer.freeze(1)
    before = [p[1].clone() for p in array.parameters()]
    state = {name: value[1].clone() for row in optimizer.state.values() for name, value in row.items()}
    by_hand(array, optimizer, batches[2:5])
    assert all(torch.equal(p[1], old) for p, old in zip(array.parameters(), before, strict=True))
    after = {name: value[1] for row in optimizer.state.values() for name, value in row.items()}
    assert all(torch.equal(value, after[name]) for name, value in state.items())
    optimizer.unfreeze(1)
    by_hand(array, optimizer, batches[5:])
    expected = alone(models, one, values, batches)
    (paused,) = alone([models[1]], one, own(values, 1), torch.cat([batches[:2], batches[5:]])[:, 1:2])
    assert_same(array, [expected[0], paused, expected[2]])


@pytest.mark.parametrize("case", CASES)
def test_sixteen_bits_and_gradients_that_are_not_finite(case, models):
    kind, _, values = CASES[case]
    array = dnnsuite.fuse(models).bfloat16()
    optimizer = kind(array.parameters(), **values)
    optimizer.on_nan = "skip"
    x = torch.randn(B, 5, 6, dtype=torch.bfloat16)
    x[1, 0, 0] = math.nan
    before = [p.detach().clone() for p in array.parameters()]
    by_hand(array, optimizer, [x, x])
    assert optimizer.skipped.tolist() == [0, 2, 0]
    for p, old in zip(array.parameters(), before, strict=True):
        assert torch.equal(p[1], old[1])
        assert p.isfinite().all()
        assert case.startswith("prodigy") or not torch.equal(p[0], old[0])


def test_what_they_cannot_take_is_refused():
    array = dnnsuite.fuse(make_models(make, B))
    with pytest.raises(InvalidArgument, match=r"Muon takes the models' matrices.*\[3, 9\]"):
        optim.Muon(array.parameters())
    with pytest.raises(InvalidArgument, match="LAMB takes real parameters"):
        optim.LAMB([torch.nn.Parameter(torch.randn(3, 2, dtype=torch.cfloat))])
    with pytest.raises(InvalidArgument, match="takes a closure"):
        optim.SAM(array.parameters(), optim.SGD, lr=0.1).step()
    with pytest.raises(InvalidArgument, match="is around an optimizer"):
        optim.Lookahead(torch.optim.SGD(array.parameters(), lr=0.1))
    first, *rest = array.parameters()
    prodigy = optim.Prodigy([{"params": [first], "lr": 0.5}, {"params": rest}])
    with pytest.raises(InvalidArgument, match="one lr for all groups"):
        prodigy.step()
    with pytest.raises(InvalidArgument, match="momentum above 0"):
        optim.SGDScheduleFree(array.parameters(), momentum=[0.9, 0.0, 0.5])
