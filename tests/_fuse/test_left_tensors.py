# SPDX-License-Identifier: MIT
"""Tensors that a forward leaves in attributes, as a cache that it looks at in the next call."""

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite._fuse.left_tensors import choose_models, joined, left_in, one_model, some_models, value_in_array_of_one
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn.model_tensor import ModelTensor
from helpers import assert_near

B = 3


class Positions(torch.nn.Module):
    """Keep waves as long as the longest input so far, as rotary embeddings do."""

    def __init__(self, pace):
        super().__init__()
        self.register_buffer("pace", torch.tensor([1.0, 0.3], dtype=torch.float64) * pace)
        self.length, self.waves, self.sines = 0, None, None

    def forward(self, n):
        if n > self.length:
            angles = torch.outer(torch.arange(n, dtype=torch.float64), self.pace)
            self.waves, self.length = angles.cos(), n
            self.sines = angles.sin()
        return self.waves[:n] + self.sines[:n]


class Reader(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.positions, self.layer = Positions(1.0 + 0.2 * seed), torch.nn.Linear(2, 1).double()

    def forward(self, x):
        return self.layer(x * self.positions(x.shape[1])).square().mean()


def models(seeds=range(B)):
    return [Reader(seed) for seed in seeds]


def batch(count=B, length=5, seed=0):
    return torch.randn(count, 4, length, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def used():
    array = dnnsuite.fuse(models())
    array(batch())
    return array


EDITS = {
    "drop": (lambda array: array.drop(0), [1, 2]),
    "clone": (lambda array: array.clone(1), [0, 1, 2, 1]),
    "append": (lambda array: array.append(Reader(7)), [0, 1, 2, 7]),
    "replace": (lambda array: array.replace(1, Reader(7)), [0, 7, 2]),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("length", [3, 5, 8])
def test_an_edit_takes_what_is_left_along(edit, length):
    change, seeds = EDITS[edit]
    array = used()
    change(array)
    x = batch(len(seeds), length)
    assert_near(array(x), torch.stack([model(x[i]) for i, model in enumerate(models(seeds))]))


class Refusing:
    def select(self, slots, **fresh):
        raise InvalidArgument("no")


@pytest.mark.parametrize("edit", [lambda array: array.drop(0, Refusing()), lambda array: array.clone(1, Refusing())])
def test_a_refused_edit_leaves_them_as_they_were(edit):
    array, x = used(), batch(length=3)
    with pytest.raises(InvalidArgument, match="no"):
        edit(array)
    assert_near(array(x), torch.stack([model(x[i]) for i, model in enumerate(models())]))


def test_a_single_model_has_its_own():
    model = dnnsuite.unfuse(used())[1]
    assert type(model.positions.waves) is torch.Tensor
    assert model.positions.waves.shape == (5, 2)
    x = batch()[1]
    assert torch.equal(model(x), Reader(1)(x))


def nothing(array, optimizer):
    pass


def load_optimizer(array, optimizer):
    optimizer.load_state_dict(optimizer.state_dict())


def validate(array, optimizer):
    with torch.no_grad():
        array(batch(seed=3))


@pytest.mark.parametrize("between", [nothing, load_optimizer, validate])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("threads", "width"), [(1, 1), (1, 3), (2, 2)])
def test_steps_of_a_runner(between, before, threads, width):
    array, plain = used() if before else dnnsuite.fuse(models()), models()
    mine = optim.SGD(array.parameters(), lr=0.1)
    theirs = [torch.optim.SGD(model.parameters(), 0.1) for model in plain]
    with dnnsuite.StepRunner(array, mine, lambda a, x: a(x), threads=threads, width=width) as runner:
        for step in range(12):
            if step in (4, 8):
                between(array, mine)
            x = batch(seed=step, length=5 if step < 9 else 8)
            losses = runner.step(x).losses()
            for index, (model, optimizer) in enumerate(zip(plain, theirs, strict=True)):
                optimizer.zero_grad()
                loss = model(x[index])
                loss.backward()
                optimizer.step()
                assert_near(losses[index], loss.detach(), f"step {step}, model {index}")


def test_parts_of_what_is_left():
    module, value = torch.nn.Module(), torch.arange(6.0).reshape(3, 2)
    left = ModelTensor(value)
    module.kept = {"a": [left], "b": torch.ones(3)}
    assert list(left_in(module)) == [left]
    assert torch.equal(some_models(module, 1, 2)[id(left)].value, value[1:])
    assert torch.equal(one_model(module, 2)[id(left)], value[2])
    choose_models([module], [2, None])
    assert torch.equal(left.value, value[[2, 0]])
    assert torch.equal(joined([ModelTensor(value[:1]), ModelTensor(value[1:])]).value, value)
    assert joined([ModelTensor(value), None]) is None
    assert torch.equal(joined([value, value]), value)


def test_an_attribute_of_one_model_in_an_array_of_it():
    layer, value = torch.nn.Linear(1, 1), torch.arange(2.0)
    held = {"a": [value], "layer": layer, "again": value}
    found = value_in_array_of_one(held, [layer])
    assert type(found["a"][0]) is ModelTensor
    assert torch.equal(found["a"][0].value, value[None])
    assert found["again"] is found["a"][0]
    assert found["layer"] is layer
    assert held["a"][0] is value
    plain = {"layer": layer, "b": [1.0]}
    assert value_in_array_of_one(plain, []) is plain
