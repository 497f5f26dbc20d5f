# SPDX-License-Identifier: MIT
"""Models of one class that differ in plain attributes: each keeps its own, whoever asks for them."""

import collections
import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, check_matches_models, make_models


class Block(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self._scale = scale

    def forward(self, x):
        return self.inner(x) * self._scale

    def other(self, x):
        return self.inner(x) + self._scale


class Outer(torch.nn.Module):
    """What differs is an attribute of a part; `look` is how the outer code gets at it."""

    def __init__(self, scale, look):
        super().__init__()
        self.block = Block(scale)
        self.blocks = torch.nn.ModuleList([Block(2 * scale)])
        self.look = look

    def forward(self, x):
        return self.look(self, x)


def numbered(make, B=3):
    counter = iter(range(1, B + 1))
    return make_models(lambda: make(next(counter)), B)


LOOKS = [
    lambda self, x: self.block(x),
    lambda self, x: self.block.forward(x),
    lambda self, x: self.block.other(x),
    lambda self, x: self.blocks[0].inner(x) * self.block._scale,
    lambda self, x: self.block(x) * self.blocks[0]._scale,
    lambda self, x: self.block.inner(x) * getattr(self.block, "_scale", 1.0),
]


@pytest.mark.parametrize("look", LOOKS)
def test_code_outside_of_the_module_sees_each_models_own(look):
    x = torch.randn(3, 5, 4)
    models = numbered(lambda i: Outer(float(i), look))
    array = dnnsuite.fuse(models)
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.0)
    for width in (1, 2, 3):
        with dnnsuite.StepRunner(
            array, optimizer, lambda part, x: part(x).square().mean((1, 2)), threads=1, width=width
        ) as runner:
            losses = runner.step(x).losses()
        for index, model in enumerate(models):
            assert_near(losses[index], model(x[index]).square().mean())
    output = array(x)
    for index, model in enumerate(models):
        assert_near(output[index], model(x[index]))
        assert array[index].block._scale == model.block._scale
        assert_near(array[index](x[index]), model(x[index]))


class Holder(torch.nn.Module):
    def __init__(self, held, use):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.held, self.use = held, use

    def forward(self, x):
        return self.inner(x) * self.use(self.held)


@pytest.mark.parametrize(
    ("make", "use"),
    [
        (lambda i: np.array([float(i)]), lambda held: float(held[0])),
        (lambda i: collections.deque([float(i)]), lambda held: held[0]),
        (lambda i: {"a": [[[[[[[[float(i)]]]]]]]]}, lambda held: held["a"][0][0][0][0][0][0][0][0]),
        (lambda i: lambda x, y=float(i): x * y, lambda held: held(1.0)),
        (lambda i: torch.nn.LeakyReLU(0.1 * i), lambda held: held.negative_slope),
        (lambda i: torch.nn.LeakyReLU(0.1 * i), lambda held: held(torch.tensor(-1.0))),
        (lambda i: [torch.nn.Linear(4, 4)], lambda held: held[0](torch.ones(4))),
    ],
)
def test_whatever_kind_of_thing_differs(make, use):
    x = torch.randn(3, 5, 4)
    models = numbered(lambda i: Holder(make(i), use))
    array = dnnsuite.fuse(models)
    for _ in range(2):
        output = array(x)
        for index, model in enumerate(models):
            assert_near(output[index], model(x[index]))


def test_slopes_of_activations():
    models = numbered(lambda i: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LeakyReLU(0.1 * i)))
    check_matches_models(models, torch.randn(3, 5, 4))


OF_NO_SHAPE = {
    "batch norm": (lambda i: torch.nn.BatchNorm1d(4, eps=10.0**-i).eval(), (5, 4)),
    "layer norm": (lambda i: torch.nn.LayerNorm(4, eps=10.0**-i), (5, 4)),
    "group norm": (lambda i: torch.nn.GroupNorm([1, 2, 4][i - 1], 4), (5, 4)),
    "padding": (
        lambda i: torch.nn.Conv2d(4, 4, 3, padding=1, padding_mode=["zeros", "reflect", "circular"][i - 1]),
        (2, 4, 5, 5),
    ),
    "transformer": (
        lambda i: torch.nn.TransformerEncoderLayer(
            4, 2, 8, 0.0, activation=["relu", "gelu", "relu"][i - 1], layer_norm_eps=10.0**-i, batch_first=True
        ),
        (2, 5, 4),
    ),
}


@pytest.mark.parametrize("kind", OF_NO_SHAPE)
def test_what_has_no_influence_on_a_shape_may_differ(kind):
    make, shape = OF_NO_SHAPE[kind]
    models = numbered(make)
    check_matches_models(models, torch.randn(3, *shape))
    array = dnnsuite.fuse(models)
    apart = "".join(cover.reason for cover in array.coverage() if cover.how == "per model")
    assert ("models differ in" in apart) == (kind not in ("batch norm", "layer norm")), apart  # these read numbers only
    for mine, model in zip(dnnsuite.unfuse(array), models, strict=True):
        assert str(mine) == str(model)


def test_a_batch_norm_that_ends_a_part_is_done_with_the_parts_own_state():
    models = numbered(lambda i: torch.nn.BatchNorm1d(4, eps=10.0**-i))
    array = dnnsuite.fuse(models)
    x, weights = torch.randn(3, 5, 4), torch.randn(3, 5, 4)
    (array(x) * weights).sum().backward()
    for index, model in enumerate(models):
        (model(x[index]) * weights[index]).sum().backward()
        assert_near(array.get_parameter("weight").grad[index], model.weight.grad)
        for name, value in model.state_dict().items():
            torch.testing.assert_close(array.state_dict()[name][index], value)


@pytest.mark.parametrize("kind", OF_NO_SHAPE)
def test_models_that_come_out_are_as_torch_made_them(kind):
    """They run, and have the attributes that torch gives them: no others, and in torch's form."""
    make, shape = OF_NO_SHAPE[kind]
    models = numbered(make)
    array = dnnsuite.fuse(models)
    x = torch.randn(3, *shape)
    for width in (1, 2):
        part = array.narrow(0, width)
        for index in range(width):
            assert_near(part(x[:width])[index], copy.deepcopy(models[index])(x[index]))
    for mine, model in zip(dnnsuite.unfuse(array), models, strict=True):
        assert vars(mine).keys() == vars(model).keys()
        assert_near(mine(x[0]), copy.deepcopy(model)(x[0]))
    array.drop(1)
    array.append(models[1])
    array.clone(0, into=1)
    for place, index in enumerate((0, 0, 1)):
        assert_near(array(x)[place], copy.deepcopy(models[index])(x[place]))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_transformers_whose_stacks_torch_treats_differently():
    kinds = ["relu", F.silu, "gelu"]
    models = numbered(lambda i: torch.nn.Transformer(4, 2, 1, 1, 8, 0.0, activation=kinds[i - 1], batch_first=True))
    check_matches_models(models, torch.randn(3, 2, 5, 4), torch.randn(3, 2, 3, 4))


class Given(torch.nn.Module):
    """Its layers have tensors and parts that torch does not give them."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3)
        self.conv.gain = torch.nn.Parameter(torch.randn(4, 1, 1))
        self.norm = torch.nn.BatchNorm2d(4)
        self.norm.act = torch.nn.ReLU()
        self.norm.register_buffer("shift", torch.randn(3), persistent=False)
        self.head = torch.nn.Linear(4, 4)
        self.head.low_rank = torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.norm.act(self.norm(self.conv(x) * self.conv.gain)).mean((2, 3))
        return self.head(x) + self.head.low_rank(x) * self.norm.shift.sum()


@pytest.mark.parametrize("training", [True, False])
def test_tensors_and_parts_that_a_user_gave_to_a_layer(training):
    models = make_models(lambda: Given().train(training), 3)
    array = dnnsuite.fuse(models)
    x, weights = torch.randn(3, 2, 2, 5, 5), torch.randn(3, 2, 4)
    for _ in range(2):
        array.zero_grad()
        (array(x) * weights).sum().backward()
        for index, model in enumerate(models):
            model.zero_grad()
            (model(x[index]) * weights[index]).sum().backward()
            for name, parameter in model.named_parameters():
                assert_near(array.get_parameter(name).grad[index], parameter.grad, name)
            for name, value in model.state_dict().items():
                torch.testing.assert_close(array.state_dict()[name][index], value)
    for mine, model in zip(dnnsuite.unfuse(array), models, strict=True):
        assert_near(mine.eval()(x[0]), model.eval()(x[0]))


def test_what_has_an_influence_on_a_shape_is_refused_where_it_stands():
    models = numbered(lambda i: torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, stride=i)))
    with pytest.raises(InvalidArgument, match=r"at 0: models 0 and 1 differ: Conv2d.stride is \(1, 1\) and \(2, 2\)"):
        dnnsuite.fuse(models)


def test_an_attribute_that_only_a_later_model_has():
    class Maybe(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x) * getattr(self, "extra", 1.0)

    models = make_models(Maybe, 3)
    models[2].extra = 3.0
    check_matches_models(models, torch.randn(3, 5, 4))


def test_attributes_that_a_user_gave_to_a_layer():
    class Reader(torch.nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)
            self.inner.scale = scale

        def forward(self, x):
            return self.inner(x) * self.inner.scale

    same = check_matches_models(make_models(lambda: Reader(3.0), 3), torch.randn(3, 5, 4))
    assert [cover.how for cover in same.coverage()] == ["fused"]
    assert same[1].inner.scale == 3.0
    check_matches_models(numbered(lambda i: Reader(float(i))), torch.randn(3, 5, 4))


def test_a_new_model_brings_its_own():
    array = dnnsuite.fuse(make_models(lambda: Block(2.0), 2))
    young = Block(5.0)
    array.append(young)
    x = torch.randn(3, 5, 4)
    assert_near(array(x)[2], young(x[2]))
    assert [model._scale for model in array] == [2.0, 2.0, 5.0]
    third = Block(7.0)
    array.replace(0, third)
    assert_near(array(x)[0], third(x[0]))
    array.drop([0, 2])
    assert_near(array(x[:1])[0], array[0](x[0]))
    assert array[0]._scale == 2.0


class Named(torch.nn.Module):
    """Its attributes have the names that an array's own could have."""

    def __init__(self):
        super().__init__()
        self.A = torch.nn.Parameter(torch.randn(4, 2))
        self.B = torch.nn.Parameter(torch.randn(2, 4))
        self.report, self.own_code, self.state, self._parts, self._known = 1.0, True, 2.0, 3.0, 4.0

    def _keep(self, x):
        return x * self._known

    def forward(self, x):
        return self._keep(x @ self.A @ self.B) + F.relu(x) * self._parts + self.report + self.state


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.B = 7

    def forward(self, x):
        return self.inner(x) * self.B


@pytest.mark.parametrize("make", [Named, Counts, lambda: torch.nn.Sequential(Named(), Counts())])
def test_names_that_an_array_has_too(make):
    array = check_matches_models(make_models(make, 3), torch.randn(3, 5, 4))
    array.drop([1])
    x = torch.randn(2, 5, 4)
    assert array.B == 2
    for index, model in enumerate(array):
        assert_near(array(x)[index], model(x[index]))
        assert_near(array.narrow(index, 1)(x[index : index + 1])[0], model(x[index]))


@pytest.mark.filterwarnings("ignore:.*(weight_norm|spectral_norm).*:FutureWarning")
@pytest.mark.parametrize("norm", [torch.nn.utils.weight_norm, torch.nn.utils.spectral_norm])
def test_weights_made_of_others_before_each_forward(norm):
    models = make_models(lambda: torch.nn.Sequential(norm(torch.nn.Linear(4, 4)), torch.nn.Tanh()), 3)
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 5, 4)
    array(x).sum().backward()
    gradients = {name: p.grad for name, p in array.named_parameters()}
    for index, model in enumerate(models):
        model(x[index]).sum().backward()
        for name, parameter in model.named_parameters():
            assert_near(gradients[name][index], parameter.grad, name)
