# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite import models as zoo
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, check_matches_models, make_models


class Flattening(torch.nn.Module):
    """A user's model: its own forward, and a `view` that knows nothing of B."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("offset", torch.tensor([0.5]))
        self.inner = torch.nn.Linear(12, 3)

    def forward(self, x):
        return self.inner(x.view(x.size(0), -1)) * self.scale + self.offset


def test_a_users_own_module_keeps_its_meaning():
    array = check_matches_models(make_models(Flattening, 3), torch.randn(3, 5, 4, 3))
    assert [(c.name, c.how) for c in array.coverage()] == [("inner", "fused")]


def test_a_users_module_within_a_container():
    make = lambda: torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), Flattening())  # noqa: E731
    array = check_matches_models(make_models(make, 2), torch.randn(2, 5, 6))
    assert [c.how for c in array.coverage()] == ["fused", "elementwise", "fused"]


def test_batch_norm_updates_each_models_statistics():
    models = make_models(lambda: torch.nn.BatchNorm1d(4), 2)
    x = torch.randn(2, 8, 4)
    array = dnnsuite.fuse(models)
    array(x)
    for index, (model, back) in enumerate(zip(models, dnnsuite.unfuse(array), strict=True)):
        model(x[index])
        assert_near(back.running_mean, model.running_mean)
        assert_near(back.running_var, model.running_var)
        assert back.num_batches_tracked == model.num_batches_tracked == 1


def test_bert_matches_models(device):
    make = lambda: zoo.BERT(torch.nn, 50, emsize=12, nhid=20, nlayers=2, nhead=3, dropout=0.0, max_len=6)  # noqa: E731
    tokens = torch.randint(50, (2, 4, 6), device=device)
    positions = torch.randint(6, (2, 4, 2), device=device)
    array = check_matches_models(make_models(make, 2, device=device), tokens, positions)
    assert all(c.how == "fused" for c in dnnsuite.coverage(array))


def test_the_models_stay_as_they_are():
    models = make_models(lambda: torch.nn.Linear(3, 3), 2)
    before = models[1].weight.clone()
    with torch.no_grad():
        dnnsuite.fuse(models).weight.add_(1.0)
    assert torch.equal(models[1].weight, before)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([], "one or more"),
        ([torch.nn.Linear(3, 3), torch.nn.ReLU()], "differ at the top: Linear and ReLU"),
        ([torch.nn.Sequential(torch.nn.Linear(3, i)) for i in (3, 4)], "at 0: .*out_features is 3 and 4"),
        ([torch.nn.Sequential(*[torch.nn.ReLU()] * i) for i in (1, 2)], "differ at the top"),
        ([torch.nn.Conv1d(3, i, 1) for i in (3, 4)], "out_channels is 3 and 4"),
    ],
)
def test_refuses_models_that_differ(models, message):
    with pytest.raises(InvalidArgument, match=message):
        dnnsuite.fuse(models)


def test_unfuse_refuses_what_is_no_array():
    with pytest.raises(InvalidArgument, match="not an array"):
        dnnsuite.unfuse(torch.nn.Linear(3, 3))


def test_an_array_within_a_module_of_the_users():
    class Around(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.array = dnnsuite.fuse(make_models(Flattening, 2))
            self.gain = torch.nn.Parameter(torch.ones(2, 1, 1))

        def forward(self, x):
            return self.array(x) * self.gain

    around, other = Around(), Around()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    other.load_state_dict(around.state_dict())
    x = torch.randn(2, 5, 4, 3)
    assert torch.equal(other(x), around(x))
    assert sorted(around.state_dict()) == sorted(["gain", *(f"array.{name}" for name in around.array.state_dict())])
    assert around.double()(x.double()).dtype == torch.float64


def test_layers_without_parameters_lie_where_the_models_do():
    def make():
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2)).to("meta")

    array = dnnsuite.fuse([make(), make()])
    assert {name for name, _ in array.named_buffers()} >= {"1.p", "1.rng"}
    assert {buffer.device.type for buffer in array.buffers()} == {"meta"}


def test_of_models_on_two_devices_nothing_is_moved():
    def make():
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2, device="meta"))

    array = dnnsuite.fuse([make(), make()])
    assert {name: buffer.device.type for name, buffer in array.named_buffers()}["1.p"] == "cpu"


class Scaling(torch.nn.Module):
    """Scales by a plain attribute; with `branch` its models run one by one."""

    def __init__(self, scale=2.0, branch=False):
        super().__init__()
        self.inner, self.scale, self.branch = torch.nn.Linear(3, 3), scale, branch

    def forward(self, x):
        x = self.inner(x)
        if self.branch and x.sum() > 0:
            return x * self.scale * 2
        return x * self.scale


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize("differing", [False, True])
def test_an_attribute_that_the_models_have_is_set_in_every_model(nested, branch, B, differing):
    models = [Scaling(2.0 + i * differing, branch) for i in range(B)]
    models = [torch.nn.Sequential(m) for m in models] if nested else models
    array, x = dnnsuite.fuse(models), torch.randn(B, 5, 3)
    array(x)
    if differing and B > 1:
        with pytest.raises(AttributeError):
            (array.get_submodule("0") if nested else array).scale  # noqa: B018
    (array.get_submodule("0") if nested else array).scale = 5.0
    for model in models:
        (model[0] if nested else model).scale = 5.0
    found = array(x)
    for index, model in enumerate(models):
        assert_near(found[index], model(x[index]))
        assert_near(array[index](x[index]), model(x[index]))
    assert (array.get_submodule("0") if nested else array).scale == 5.0


class NamedLikeMethods(torch.nn.Module):
    """Attributes under names of methods: torch's `double`, the array's `drop` and `clone`."""

    def __init__(self, rate=0.5):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.double, self.drop = False, rate
        self.clone = torch.nn.Identity()

    def forward(self, x):
        x = self.clone(self.inner(x)) * self.drop
        return 2 * x if self.double else x


@pytest.mark.parametrize("rates", [[0.5, 0.5], [0.5, 0.25]])
def test_an_attribute_of_the_models_may_have_the_name_of_a_method(rates):
    models = [NamedLikeMethods(rate) for rate in rates]
    array, x = dnnsuite.fuse(models), torch.randn(2, 5, 3)
    for name, value in {"double": True, "drop": 3.0}.items():
        for holder in (array, *models):
            setattr(holder, name, value)
        found = array(x)
        for index, model in enumerate(models):
            assert_near(found[index], model(x[index]))
            assert_near(array[index](x[index]), model(x[index]))
    array.clone = torch.nn.Tanh()
    for index, model in enumerate(models):
        model.clone = torch.nn.Tanh()
        assert_near(array(x)[index], model(x[index]))
    array.drop(1)
    assert array.B == 1


def test_an_attribute_that_the_models_lack_is_the_arrays():
    array = dnnsuite.fuse(make_models(Scaling, 2))
    array.note = {"best": 1}
    array.tensor = torch.ones(3)
    assert array.note == {"best": 1}
    assert not hasattr(array._root, "note")
    assert not hasattr(array[0], "note")
    assert not any("tensor" in name for name in array.state_dict())
    del array.note, array.tensor
    assert not hasattr(array, "note")
    with pytest.raises(AttributeError):
        del array.note
    del array.scale
    with pytest.raises(AttributeError, match="scale"):
        array(torch.randn(2, 5, 3))


def test_state_and_layers_that_are_set_are_those_of_all_models():
    array = dnnsuite.fuse(make_models(Scaling, 2))
    x = torch.randn(2, 5, 3)
    before = dict(array.named_modules())
    for wrong in (torch.nn.Linear(3, 3), dnnsuite.nn.Linear(3, 3, B=3), torch.nn.Sequential(torch.nn.Conv1d(1, 1, 1))):
        with pytest.raises(InvalidArgument, match=r"not a layer of 2 models: give one of dnnsuite\.nn with B=2"):
            array.inner = wrong
        with pytest.raises(InvalidArgument, match="not a layer of 2 models"):
            array.more = wrong
    with pytest.raises(InvalidArgument, match=r"array.bias is that of 2 models, \[2, ...\]; got \[3\]"):
        array.bias = torch.nn.Parameter(torch.ones(3))
    assert dict(array.named_modules()) == before
    array.inner = dnnsuite.nn.Linear(3, 3, B=2)
    assert_near(array(x), array.inner(x) * 2)
    array.train(False)
    assert not array.inner.training


class Counts(torch.nn.Linear):
    def get_extra_state(self):
        return {"steps": 3}

    def set_extra_state(self, state):
        pass


def test_the_state_of_one_model_has_its_modules_extra_state():
    array = dnnsuite.fuse([torch.nn.Sequential(Counts(3, 2)) for _ in range(2)])
    assert array.model_state_dict(1)["0._extra_state"] == {"steps": 3}
