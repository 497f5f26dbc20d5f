# SPDX-License-Identifier: MIT
"""What all models share is one tensor, whatever torch's methods do with the array."""

import copy
import io
import pickle

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn.sharing import is_shared, make_own, same_memory
from helpers import assert_near

B = 3


def base():
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(16, 5)
    return torch.nn.Sequential(*layers, torch.nn.LayerNorm(5)).requires_grad_(False).eval()


class Headed(torch.nn.Module):
    def __init__(self, under):
        super().__init__()
        self.base, self.head = under, torch.nn.Linear(5, 2)
        self.scale = under[3].bias  # tied
        self.register_buffer("offset", under[3].weight[:, 0])

    def forward(self, x):
        return self.head(self.base(x) * self.scale + self.offset)


@pytest.fixture
def models():
    under, offset = base(), torch.ones(5)
    made = [Headed(under).eval() for _ in range(B)]
    for model in made:
        model.offset = offset
    return made


def once(array):
    """Names of what is kept once; shared rows must be the models'."""
    return {name for name, value in array.state_dict().items() if is_shared(value)}


def check(array, models, x=None):
    assert once(array) == {name for name in array.state_dict() if not name.startswith("head")}
    x = torch.randn(len(models), 4, 2, 4, 4) if x is None else x
    output = array(x)
    for index, model in enumerate(models):
        assert_near(output[index], model(x[index]))


def test_parameters_are_not_copied(models):
    array = dnnsuite.fuse(models)
    check(array, models)
    assert array.base[3].weight.data_ptr() == models[0].base[3].weight.data_ptr()
    assert array.base[0].weight.data_ptr() == models[0].base[0].weight.data_ptr()
    assert array.base[1].running_mean.data_ptr() != models[0].base[1].running_mean.data_ptr()
    assert array.scale is array.base[3].bias


@pytest.mark.parametrize(
    "again",
    [
        copy.deepcopy,
        lambda array: pickle.loads(pickle.dumps(array)),
        lambda array: copy.deepcopy(array).double().float(),
        lambda array: torch.nn.ModuleList([copy.deepcopy(torch.nn.Sequential(array))])[0][0],
    ],
    ids=["deepcopy", "pickle", "to", "inside a copied module"],
)
def test_copies_keep_it_once(models, again):
    check(again(dnnsuite.fuse(models)), models)


def test_files_hold_it_once(models):
    array = dnnsuite.fuse(models)
    file = io.BytesIO()
    torch.save(array.state_dict(), file)
    alone = io.BytesIO()
    torch.save(models[0].state_dict(), alone)
    assert file.tell() < alone.tell() + 2 * B * models[0].head.weight.nbytes + 4096
    file.seek(0)
    fresh = dnnsuite.fuse([Headed(models[0].base).eval() for _ in range(B)])
    before = models[0].base[3].weight.clone()
    rows = {name: value + 1 if "base.3" in name else value for name, value in torch.load(file).items()}
    fresh.load_state_dict(rows)
    assert once(fresh) == {name for name in rows if not name.startswith(("head", "offset"))} | {"offset"}
    assert torch.equal(fresh.base[3].weight[1], before + 1)
    assert torch.equal(models[0].base[3].weight, before)  # the user's base is as it was
    dense = {name: value.clone() for name, value in rows.items()}
    fresh.load_state_dict(dense)
    assert "base.3.weight" in once(fresh)
    dense["base.3.weight"][1] += 1
    fresh.load_state_dict(dense)
    assert "base.3.weight" not in once(fresh)
    assert torch.equal(fresh.base[3].weight, dense["base.3.weight"])


def test_edits(models):
    array = dnnsuite.fuse(models)
    array.drop(1)
    array.append(models[1])
    array.clone(0, into=1)
    models = [models[0], models[0], models[1]]
    check(array, models)
    fresh = Headed(models[0].base).eval()
    fresh.offset = models[0].offset
    array.replace(2, fresh)
    check(array, [*models[:2], fresh])
    other = copy.deepcopy(fresh)
    with torch.no_grad():
        other.base[3].weight += 1
    array.append(other)
    assert "base.3.weight" not in once(array)
    assert "base.0.weight" in once(array)
    x = torch.randn(4, 2, 2, 4, 4)
    assert_near(array(x)[3], other(x[3]))
    assert_near(array(x)[1], models[1](x[1]))


def test_a_single_model_that_is_joined_by_another(models):
    array = dnnsuite.fuse(models)
    array.drop([0, 1])
    assert not once(array)
    array.append(models[0])
    check(array, [models[2], models[0]])


def test_models_share_it_again(models):
    array = dnnsuite.fuse(models)
    apart = dnnsuite.unfuse(array)
    assert all(model.base[3].weight is apart[0].base[3].weight for model in apart)
    assert all(model.base[1].running_mean is apart[0].base[1].running_mean for model in apart)
    assert apart[0].base[3].weight.data_ptr() != models[0].base[3].weight.data_ptr()
    with torch.no_grad():
        array[0].base[3].weight += 1  # a copy, as ever
    check(dnnsuite.fuse(apart), models)
    check(array, models)


def test_equal_values_if_asked(models):
    apart = [copy.deepcopy(model) for model in models]
    assert not once(dnnsuite.fuse(apart))
    check(dnnsuite.fuse(apart, share="equal"), models)
    with pytest.raises(InvalidArgument, match="share is 'same' or 'equal', got 'all'"):
        dnnsuite.fuse(apart, share="all")


def test_what_is_trained_by_several_models_is_refused(models):
    models[0].base[3].weight.requires_grad_()
    with pytest.raises(InvalidArgument, match=r"models 0 and 1 share base\.3.*weight, which takes a gradient"):
        dnnsuite.fuse(models)
    layer = torch.nn.Linear(2, 2)
    with pytest.raises(InvalidArgument, match=r"share .*weight, which takes a gradient"):
        dnnsuite.fuse([layer] * 2)
    tied = [torch.nn.Linear(2, 2) for _ in range(2)]
    tied[1].weight = torch.nn.Parameter(tied[0].weight.detach())  # the same memory
    with pytest.raises(InvalidArgument, match=r"share .*weight, which takes a gradient"):
        dnnsuite.fuse(tied)


def test_a_base_that_trains_in_one_model_only(models):
    models[1] = copy.deepcopy(models[1])
    models[1].base[3].weight.requires_grad_()
    with pytest.raises(InvalidArgument, match=r"base\.3"):
        dnnsuite.fuse(models)


@pytest.mark.parametrize("whole", [True, False], ids=["by the module", "by parameters"])
def test_thawed_parameters_become_each_models_own(models, whole):
    array = dnnsuite.fuse(models)
    if whole:
        array.base[3].requires_grad_()
    else:
        for parameter in array.base[3].parameters():
            parameter.requires_grad = True
    before = models[0].base[3].weight.clone()
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=[0.1, 0.2, 0.3])
    x = torch.randn(B, 4, 2, 4, 4)
    array(x).square().mean((1, 2)).sum().backward()
    optimizer.step()
    assert not is_shared(array.base[3].weight)
    assert is_shared(array.base[0].weight)
    assert torch.equal(models[0].base[3].weight, before)
    for index, lr in enumerate((0.1, 0.2, 0.3)):
        alone = copy.deepcopy(models[index])
        alone.base[3].requires_grad_()
        alone(x[index]).square().mean().backward()
        torch.optim.SGD([p for p in alone.parameters() if p.requires_grad], lr=lr).step()
        assert_near(array.base[3].weight[index], alone.base[3].weight)


def test_make_own_and_same_memory(models):
    array = dnnsuite.fuse(models)
    assert make_own(array.base[3], ["weight"])
    assert not make_own(array.base[3], ["weight"])
    x = torch.zeros(2)
    assert same_memory([x, x[:]])
    assert not same_memory([x, x.clone()])


def test_the_base_of_a_single_model_is_not_copied_either(models):
    model = models[0]
    before = copy.deepcopy(model.state_dict())
    array = dnnsuite.fuse([model])
    base = [p for name, p in array.named_parameters() if not name.startswith("head")]
    theirs = [p for name, p in model.named_parameters() if not name.startswith("head")]
    assert [p.data_ptr() for p in base] == [p.data_ptr() for p in theirs]
    assert array.head.weight.data_ptr() != model.head.weight.data_ptr()
    assert dnnsuite.state_bytes(array).shared == sum(p.nbytes for p in theirs)
    x = torch.randn(1, 4, 2, 4, 4)
    assert_near(array(x)[0], model(x[0]))
    for other in (copy.deepcopy(array), pickle.loads(pickle.dumps(array)), copy.deepcopy(array).double().float()):
        assert_near(other(x)[0], model(x[0]))
    # What would write into it writes elsewhere.
    array.load_state_dict({name: value + 1 for name, value in array.state_dict().items()})
    array.requires_grad_()
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=[0.1])
    array.train()
    array(x).square().mean((1, 2)).sum().backward()
    optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_single_model_is_replaced_and_joined_without_a_copy_of_the_base(models):
    array = dnnsuite.fuse(models[:1])
    place = array.base[3].weight.data_ptr()
    array.replace(0, models[1])
    assert array.base[3].weight.data_ptr() == place
    array.append(models[2])
    check(array, [models[1], models[2]])
    array.drop(0)
    assert array.base[3].weight.data_ptr() == place
    assert_near(array(x := torch.randn(1, 4, 2, 4, 4))[0], models[2](x[0]))
