# SPDX-License-Identifier: MIT
"""Code that runs model by model."""

import copy
import math

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, check_matches_models, make_models


class Branching(torch.nn.Module):
    """Each model goes its own way."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.left, self.right = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.norm(x)
        return self.left(x) if x[0, 0] > 0 else 2 * self.right(x)


class Rounding(torch.autograd.Function):
    """An operator with a gradient of its own: three times the incoming one."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return 3 * grad


class StraightThrough(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return Rounding.apply(self.inner(x))


def per_model(array):
    return [(cover.name, cover.reason) for cover in array.coverage() if cover.how == "per model"]


def test_a_branch_on_the_data():
    x = torch.randn(4, 6, 4)
    x[:, 0, 0] = torch.tensor([9.0, -9.0, 9.0, -9.0])
    models = [model.eval() for model in make_models(Branching, 4)]
    array = check_matches_models(models, x)
    ((name, reason),) = per_model(array)
    assert name == ""
    assert "differs from model to model" in reason
    assert array.coverage()[0].cost_s > 0


def test_statistics_are_updated_once():
    models = make_models(Branching, 4)
    x = torch.randn(4, 6, 4)
    x[:, 0, 0] = torch.tensor([9.0, -9.0, 9.0, -9.0])
    array = dnnsuite.fuse(models)
    for _ in range(2):
        array(x)
    for index, model in enumerate(models):
        model(x[index])
        model(x[index])
        assert_near(array.norm.running_mean[index], model.norm.running_mean)
    assert array.norm.num_batches_tracked.tolist() == [2] * 4


def test_only_the_module_that_needs_it():
    make = lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), Branching(), torch.nn.Linear(4, 2))  # noqa: E731
    x = torch.randn(3, 6, 4)
    array = dnnsuite.fuse(make_models(make, 3))
    array.per_model("1")
    array(x)
    assert [name for name, _ in per_model(array)] == ["1"]
    with pytest.raises(InvalidArgument, match="Linear"):
        array.per_model("0")


def test_an_autograd_function_of_the_users():
    array = check_matches_models(make_models(StraightThrough, 3), torch.randn(3, 5, 4))
    assert "autograd.Function" in per_model(array)[0][1]


def test_a_copy_after_a_step():
    """What plain torch computed it with is none of the copy's."""
    array = dnnsuite.fuse(make_models(StraightThrough, 3))
    x = torch.randn(3, 5, 4)
    array(x).sum().backward()
    twin = copy.deepcopy(array)
    assert_near(twin(x), array(x))
    twin.get_parameter("inner.weight").data.zero_()
    assert not torch.equal(twin(x), array(x))


def test_attributes_that_differ():
    class Power(torch.nn.Module):
        def __init__(self, power):
            super().__init__()
            self.power = power
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x) ** self.power

    powers = iter([1, 2, 3])
    models = make_models(lambda: Power(next(powers)), 3)
    array = check_matches_models(models, torch.randn(3, 5, 4))
    assert per_model(array) == [("", "models differ in power (models 0 and 1)")]
    assert [model.power for model in dnnsuite.unfuse(array)] == [1, 2, 3]
    part = array.narrow(1, 2)
    x = torch.randn(3, 5, 4)
    torch.testing.assert_close(part(x[1:]), array(x)[1:])


def test_outputs_of_different_shape_are_refused_by_name():
    class Mask(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x):
            return x[x > 0]

    with pytest.raises(InvalidArgument, match="outputs of different shape"):
        dnnsuite.fuse(make_models(Mask, 2))(torch.tensor([[[1.0, 2.0]], [[1.0, -2.0]]]))


def test_a_parameter_in_a_plain_list():
    class Listed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4))
            self.bias = torch.nn.Parameter(torch.randn(4))
            self.all = [self.weight, self.bias]

        def forward(self, x):
            return x * self.all[0] + self.all[1]

    check_matches_models(make_models(Listed, 3), torch.randn(3, 5, 4))


def test_dropout_of_a_model_alone_is_that_of_the_array():
    class Noisy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = torch.nn.Dropout(0.5)
            self.inner = torch.nn.Linear(16, 16)

        def forward(self, x):
            y = self.drop(self.inner(x))
            return y if float(y.detach().sum()) > math.inf else y * 2

    models = make_models(Noisy, 3)
    x = torch.randn(3, 5, 16)
    looped = dnnsuite.fuse(models, seeds=[7, 8, 9])
    alone = dnnsuite.fuse(models[1:2], seeds=[8])
    for _ in range(2):
        torch.testing.assert_close(looped(x)[1], alone(x[1:2])[0])


class InPlace(torch.nn.Module):
    """Writes into what it is given, and returns that or something else."""

    def __init__(self, returns_it):
        super().__init__()
        self.conv, self.act, self.returns_it = torch.nn.Linear(4, 4), WritesItsInput(returns_it), returns_it

    def forward(self, x):
        h = self.conv(x)
        made = self.act(h)
        if self.returns_it:
            made *= 2
        return h + made.sin()


class WritesItsInput(torch.nn.Module):
    def __init__(self, returns_it):
        super().__init__()
        self.returns_it = returns_it

    def forward(self, x):
        return x.mul_(3) if self.returns_it else x.mul_(3).exp()


@pytest.mark.parametrize("returns_it", [True, False])
def test_code_that_writes_into_its_argument(returns_it):
    models = make_models(lambda: InPlace(returns_it), 3, torch.float64)
    array = dnnsuite.fuse(models)
    array.per_model("act")
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    array(x).sum().backward()
    for index, model in enumerate(models):
        model(x[index]).sum().backward()
        assert_near(array.conv.weight.grad[index], model.conv.weight.grad)
    assert_near(array(x)[1], models[1](x[1]))


class Memory:
    """An object that no two models can share, as a cache of keys and values."""

    def __init__(self):
        self.total = 0.0

    def take(self, x):
        self.total = self.total + x
        return self.total


class Remembers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x, memory=None):
        memory = Memory() if memory is None else memory
        x = self.layer(x)
        return memory.take(x if x.sum() > 0 else -x), memory


class Twice(torch.nn.Module):
    """Hands the memory of its part from call to call, and looks into it where asked."""

    def __init__(self, looks):
        super().__init__()
        self.part, self.looks = Remembers(), looks

    def forward(self, x):
        y, memory = self.part(x)
        y, memory = self.part(y, memory)
        return y + memory.total if self.looks else y


@pytest.mark.parametrize("looks", [False, True])
def test_an_object_that_a_part_hands_out_comes_back_to_its_model(looks):
    torch.manual_seed(0)
    models = [Twice(looks) for _ in range(4)]
    array = dnnsuite.fuse(models)
    for _ in range(2):
        x = torch.randn(4, 3, 4)
        wanted = torch.stack([model(own) for model, own in zip(models, x, strict=True)])
        torch.testing.assert_close(array(x), wanted)


class Strided(torch.nn.Module):
    """Counts places from the start of its input's memory, or of its weight's: torch has no rule for that."""

    def __init__(self, of_weight):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.last = StridedPart(of_weight)

    def forward(self, x):
        return self.last(self.first(x))


class StridedPart(torch.nn.Module):
    def __init__(self, of_weight):
        super().__init__()
        self.weight, self.of_weight = torch.nn.Parameter(torch.randn(4)), of_weight

    def forward(self, x):
        counted, put = (self.weight, x) if self.of_weight else (x, self.weight)
        return torch.as_strided_scatter(counted, put[:2], (2,), (1,), storage_offset=0)


def test_places_are_counted_from_the_start_of_each_models_input():
    models = [Strided(of_weight=False) for _ in range(3)]
    array = dnnsuite.fuse(copy.deepcopy(models))
    x = torch.randn(3, 4)
    assert_near(array(x), torch.stack([model(own) for model, own in zip(models, x, strict=True)]))


def test_places_of_a_weight_that_lies_in_the_memory_of_all_are_refused():
    array = dnnsuite.fuse([Strided(of_weight=True) for _ in range(3)])
    with pytest.raises(InvalidArgument, match="storage_offset"):
        array(torch.randn(3, 4))
