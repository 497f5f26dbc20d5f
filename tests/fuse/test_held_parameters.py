"""Parameters and buffers that models hold in lists, objects, closures and the like, and read in their forward."""

import collections
import copy
import dataclasses
import functools
import pickle
import types
import weakref

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models
from trained_models import check_trained


@dataclasses.dataclass
class Holder:
    tensor: torch.Tensor


class Slotted:
    __slots__ = ("tensor",)

    def __init__(self, tensor):
        self.tensor = tensor


Pair = collections.namedtuple("Pair", "one two")


class Model(torch.nn.Module):
    """Its penalty reads what `hold` puts in an attribute."""

    def __init__(self, hold, read, looks):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.own = torch.nn.Parameter(torch.randn(4))
        self.kept, self.read, self.looks = hold(self), read, looks

    def forward(self, x):
        if self.looks:
            x = x * (2 if x.sum().item() > 0 else 1)
        return self.norm(self.layer(x)) * (1 + self.read(self.kept).square().mean()) * self.own


KINDS = {
    "list": (lambda m: [m.layer.weight], lambda kept: kept[0]),
    "own": (lambda m: [m.own], lambda kept: kept[0]),
    "tuple": (lambda m: (1, m.layer.weight), lambda kept: kept[1]),
    "named tuple": (lambda m: Pair(m.layer.weight, m.own), lambda kept: kept.one.sum() + kept.two.sum()),
    "dictionary": (lambda m: {"w": {"v": m.layer.weight}}, lambda kept: kept["w"]["v"]),
    "deque": (lambda m: collections.deque([m.layer.bias]), lambda kept: kept[0]),
    "parameters": (lambda m: list(m.parameters()), lambda kept: sum(p.square().sum() for p in kept)),
    "names": (lambda m: dict(m.named_parameters()), lambda kept: kept["layer.weight"]),
    "dataclass": (lambda m: Holder(m.layer.weight), lambda kept: kept.tensor),
    "object": (lambda m: types.SimpleNamespace(inner=[m.layer.weight]), lambda kept: kept.inner[0]),
    "reference": (lambda m: weakref.ref(m.layer.weight), lambda kept: kept()),
    "buffer": (lambda m: [m.norm.running_mean], lambda kept: kept[0]),
    "module in a closure": (lambda m: lambda: m.layer.weight, lambda kept: kept()),
}


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_holds_a_parameter_has_that_of_each_model(kind, looks):
    hold, read = KINDS[kind]
    for options in ({}, {"threads": 2, "width": 1}):
        check_trained(lambda: Model(hold, read, looks), B=3, **options)


REFUSED = {
    "closure": (lambda m: (lambda w: lambda: w.sum())(m.layer.weight), lambda kept: kept()),
    "closures": (lambda m: [(lambda w: lambda: w.sum())(m.layer.weight)], lambda kept: kept[0]()),
    "method": (lambda m: m.layer.weight.sum, lambda kept: kept()),
    "methods": (lambda m: {"f": m.layer.weight.sum}, lambda kept: kept["f"]()),
    "partial": (lambda m: functools.partial(torch.mul, m.layer.weight), lambda kept: kept(2.0)),
    "slots": (lambda m: Slotted(m.layer.weight), lambda kept: kept.tensor),
    "iterator": (lambda m: iter([m.layer.weight] * 1000), lambda kept: next(kept)),
    "keys": (lambda m: {m.layer.weight: 2.0}, lambda kept: next(iter(kept)) * 2.0),
    "view": (lambda m: m.layer.weight.detach().view(-1), lambda kept: kept),
    "views": (lambda m: [m.layer.weight.data[0]], lambda kept: kept[0]),
    "array": (lambda m: m.layer.weight.detach().numpy(), lambda kept: torch.as_tensor(kept)),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_could_not_have_that_of_each_model_is_refused(kind):
    with pytest.raises(InvalidArgument, match=r"holds .*layer.weight of the model that was copied"):
        dnnsuite.fuse(make_models(lambda: Model(*REFUSED[kind], False), 2))


def test_a_hook_that_holds_a_parameter_is_refused():
    def make():
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        weight = model[0].weight
        model[1].register_forward_hook(lambda module, args, output: output * weight.sum())
        return model

    with pytest.raises(InvalidArgument, match=r"hook of a ReLU holds 0.weight"):
        dnnsuite.fuse(make_models(make, 2))


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.held = [self.layer.weight]

    def forward(self, x):
        return self.layer(x)


class ReadsAPart(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.other = Part(), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.other(self.part(x)) * self.part.held[0].sum()


class HoldsOfAParent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.other, self.part = torch.nn.Linear(4, 4), Reader()
        self.part.held = [self.other.weight]

    def forward(self, x):
        return self.part(self.other(x))


class Reader(Part):
    def forward(self, x):
        return self.layer(x) * self.held[0].sum()


class SetOnALayer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.layer.held = [self.layer.weight]

    def forward(self, x):
        return self.layer(x) * self.layer.held[0].sum()


WHERE = {
    "read by the parent": ReadsAPart,
    "a parent's": HoldsOfAParent,
    "on a layer": SetOnALayer,
    "in a sequence": lambda: torch.nn.Sequential(Reader(), torch.nn.Linear(4, 4)),
    "of a sibling": lambda: _of_a_sibling(),
}


def _of_a_sibling():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Reader())
    model[1].held = [model[0].weight]
    return model


@pytest.mark.parametrize("where", WHERE)
def test_parts_that_hold_a_parameter(where):
    for options in ({}, {"threads": 2, "width": 1}):
        check_trained(WHERE[where], B=3, **options)


def test_a_part_that_only_its_own_code_reads_leaves_the_others_fused():
    array = dnnsuite.fuse(make_models(WHERE["in a sequence"], 2))
    x = torch.randn(2, 5, 4)
    array(x)
    assert array[1](x[1]).allclose(array(x)[1])
    assert [row.how for row in array.coverage() if row.name == "1"] == ["fused"]


def test_a_pickled_array_holds_its_own():
    models = make_models(Reader, 3)
    array = pickle.loads(pickle.dumps(dnnsuite.fuse(models)))
    x = torch.randn(3, 5, 4)
    for _ in range(2):
        for part in (array, *models):
            with torch.no_grad():
                part.layer.weight.mul_(1.25)
        assert_near(array(x), torch.stack([one(own) for one, own in zip(models, x, strict=True)]))


def test_what_no_forward_reads_costs_nothing():
    class Notes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)
            self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)

        def forward(self, x):
            return self.layer(x).tanh()

    array = dnnsuite.fuse(make_models(Notes, 2))
    array(torch.randn(2, 5, 4))
    assert "per model" not in [row.how for row in array.coverage()]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", ["list", "own", "dictionary", "dataclass", "buffer"])
def test_copies_and_edits_hold_their_own(kind, frozen):
    hold, read = KINDS[kind]
    models = make_models(lambda: Model(hold, read, False), 4)
    new = make_models(lambda: Model(hold, read, False), 6)[5]
    for one in (*models, new):
        one.eval().requires_grad_(not frozen)
    array = dnnsuite.fuse(models[:3]).eval()
    x = torch.randn(4, 5, 4)

    def check(array, models):
        for change in (lambda one: None, _change):
            for one in (array, *models):
                change(one)
            expected = [one(own) for one, own in zip(models, x, strict=False)]
            assert_near(array(x[: len(models)]), torch.stack(expected))
            for index, value in enumerate(expected):
                assert_near(array[index](x[index]), value)

    check(array, models[:3])
    check(copy.deepcopy(array), copy.deepcopy(models[:3]))
    check(dnnsuite.fuse(dnnsuite.unfuse(array)).eval(), copy.deepcopy(models[:3]))
    for index, one in enumerate(dnnsuite.unfuse(array)):
        _change(one)
        expected = copy.deepcopy(models[index])
        _change(expected)
        assert_near(one(x[index]), expected(x[index]))
    check(array, models[:3])
    array.replace(1, new)
    check(array, [models[0], new, models[2]])
    array.append(models[3])
    check(array, [models[0], new, models[2], models[3]])
    array.drop([0])
    check(array, [new, models[2], models[3]])


@torch.no_grad()
def _change(one):
    for value in (*one.parameters(), one.norm.running_mean):
        value.mul_(1.25)


class MayHold(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.kept = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), None

    def forward(self, x):
        return self.norm(self.layer(x)) * (self.kept[0].sum() if self.kept else 1)


@pytest.mark.parametrize("name", ["layer.weight", "norm.running_var"])
def test_what_is_set_after_fuse_does_not_hold_tensors_of_all_models(name):
    array = dnnsuite.fuse(make_models(MayHold, 2))
    with pytest.raises(InvalidArgument, match=r"kept would hold tensors of all models"):
        array.kept = [array.state_dict(keep_vars=True)[name]]
    array.kept, array.notes = [torch.ones(3)], list(array.parameters())
    array(torch.randn(2, 5, 4))


class KeepsInForward(MayHold):
    def forward(self, x):
        if self.kept is None:
            self.kept = [self.layer.weight]
        return super().forward(x)


def test_what_a_forward_keeps_in_a_list_is_each_models():
    for options in ({}, {"threads": 2, "width": 1}):
        check_trained(KeepsInForward, B=3, **options)


def test_lists_of_parameters_that_models_share():
    weight = torch.nn.Parameter(torch.randn(4, 4), requires_grad=False)

    def make():
        model = Reader()
        model.frozen = torch.nn.Linear(4, 4)
        model.frozen.weight, model.held = weight, {0: [weight][0]}
        return model

    models = make_models(make, 3)
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 5, 4)
    for factor in (1.0, 1.5):
        array.load_state_dict({name: value * factor for name, value in array.state_dict().items()})
        for one in models:
            with torch.no_grad():
                for value in (one.layer.weight, one.layer.bias):
                    value.mul_(factor)
        with torch.no_grad():
            weight.mul_(factor)
        assert_near(array(x), torch.stack([one(own) for one, own in zip(models, x, strict=True)]))
    assert all(one.held[0] is one.frozen.weight for one in dnnsuite.unfuse(array))


class Penalized(torch.nn.Module):
    def __init__(self, held=()):
        super().__init__()
        self.layer, self.other = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
        self.held = [getattr(self, name).weight for name in held]

    def forward(self, x):
        return self.layer(x) + self.other(x) + sum(weight.square().sum() for weight in self.held)


@pytest.mark.parametrize("runner", [None, {"threads": 1}, {"threads": 2, "width": 1}])
@pytest.mark.parametrize("nested", [False, True])
def test_what_is_appended_after_fuse_is_each_models_or_refused(nested, runner):
    def made(held):
        return [torch.nn.Sequential(Penalized(held)) if nested else Penalized(held) for _ in range(3)]

    x = torch.randn(3, 5, 4)
    for held in (("layer",), ()):
        models = made(held)
        array = dnnsuite.fuse(models)
        optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.0)
        kept = dnnsuite.StepRunner(array, optimizer, lambda array, x: array(x).flatten(1).mean(1), **(runner or {}))
        step = (lambda x, kept=kept: kept.step(x).losses()) if runner else lambda x, array=array: array(x).mean((1, 2))
        with kept:
            for _ in range(4):
                step(x)
            for part in (array, *models):
                inner = part.get_submodule("0") if nested else part
                inner.held.append(inner.other.weight)
            for _ in range(4):
                if held:
                    expected = torch.stack([model(own).mean() for model, own in zip(models, x, strict=True)])
                    torch.testing.assert_close(step(x), expected.detach())
                else:
                    with pytest.raises(InvalidArgument, match="held would hold tensors of all models"):
                        step(x)
