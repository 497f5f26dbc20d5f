# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import fuse, nn, stack
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, check_matches_models, make_models


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (2, 3), (1,), (40, 7)])
@pytest.mark.parametrize("B", [1, 3])
def test_matches_models(B, shape, bias, device):
    models = make_models(lambda: torch.nn.Linear(6, 4, bias=bias), B, device=device)
    check_matches_models(models, torch.randn(B, *shape, 6, device=device))


@pytest.mark.parametrize("sizes", [(32, 128, 128), (64, 784, 512), (1, 1, 1), (17, 33, 9)])
def test_every_size_matches(sizes):
    rows, inputs, outputs = sizes
    models = make_models(lambda: torch.nn.Linear(inputs, outputs), 2)
    check_matches_models(models, torch.randn(2, rows, inputs))


def test_double():
    check_matches_models(make_models(lambda: torch.nn.Linear(6, 4), 3, torch.float64), torch.randn(3, 5, 6).double())


def test_shared_input_gives_what_copies_give():
    x = torch.randn(5, 6)
    layer = nn.Linear(6, 4, B=3)
    assert_near(layer(stack(x, B=3)), layer(torch.stack([x] * 3)))


def test_strided_input():
    models = make_models(lambda: torch.nn.Linear(6, 4), 3)
    check_matches_models(models, torch.randn(3, 6, 5).transpose(1, 2))


def test_width_zero_is_torchs_own():
    layer = nn.Linear(6, 4)
    assert type(layer) is torch.nn.Linear


def test_starts_as_layers_made_one_by_one():
    torch.manual_seed(3)
    one_by_one = [torch.nn.Linear(6, 4) for _ in range(2)]
    torch.manual_seed(3)
    array = nn.Linear(6, 4, B=2)
    for index, layer in enumerate(one_by_one):
        assert torch.equal(array.weight[index], layer.weight)
        assert torch.equal(array.bias[index], layer.bias)


@pytest.mark.parametrize("B", [-1, 2.0, True, None])
def test_refuses_a_width_that_counts_nothing(B):
    with pytest.raises(InvalidArgument, match="whole number of models"):
        nn.Linear(6, 4, B=B)


def test_refuses_an_input_without_the_models():
    with pytest.raises(InvalidArgument, match=r"B=3.*\[5, 6\].*stack"):
        nn.Linear(6, 4, B=3)(torch.randn(5, 6))


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 9])
@pytest.mark.parametrize("bias", ["frozen", "trained", "none"])
def test_shared_weights_give_a_model_the_bits_that_it_has_alone(rows, bias):
    torch.manual_seed(0)
    weight = torch.nn.Linear(64, 40).weight.requires_grad_(False)
    models = [torch.nn.Linear(64, 40, bias=bias != "none") for _ in range(5)]
    offsets = torch.nn.Parameter(torch.arange(40.0), requires_grad=False)
    for model in models:
        model.weight = weight
        model.bias = offsets if bias == "frozen" else model.bias
    x = torch.randn(5, rows, 64)
    for array in (fuse(models), fuse([torch.nn.Sequential(model) for model in models])):
        together = array(x)
        for index, model in enumerate(models):
            assert torch.equal(fuse([model])(x[index : index + 1])[0], together[index])
            assert_near(together[index], model(x[index]))
