# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import fuse, nn
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs._separate import share_masks
from helpers import assert_near, check_matches_models, make_models


def layer(**arguments):
    return lambda: torch.nn.TransformerEncoderLayer(12, 3, 20, **{"dropout": 0.0, "batch_first": True, **arguments})


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu", torch.nn.functional.silu])
@pytest.mark.parametrize("bias", [True, False])
def test_matches_models(norm_first, activation, bias, device):
    """The feed-forward width is not the model's: HFTA's layer adds the wrong residual there."""
    models = make_models(layer(norm_first=norm_first, activation=activation, bias=bias), 2, device=device)
    check_matches_models(models, torch.randn(2, 4, 6, 12, device=device))


def test_batch_second_and_double():
    models = make_models(layer(batch_first=False), 2, torch.float64)
    check_matches_models(models, torch.randn(2, 6, 4, 12, dtype=torch.float64))


@pytest.mark.parametrize("causal", [True, False])
def test_masks(causal):
    models = make_models(layer(), 2)
    x = torch.randn(2, 4, 6, 12)
    mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
    padding = torch.zeros(2, 4, 6, dtype=torch.bool)
    padding[:, :, 5] = True
    output = fuse(models)(x, mask, padding, is_causal=causal)
    for index, model in enumerate(models):
        assert_near(output[index], model(x[index], mask, padding[index], is_causal=causal))


@pytest.mark.parametrize("norm_first", [True, False])
def test_dropout_gives_each_model_what_torchs_layer_gives_with_the_same_masks(norm_first):
    seeds, rates = [5, 6], [0.1, 0.4]
    models = [make_models(layer(dropout=rate, norm_first=norm_first), 1)[0] for rate in rates]
    array = fuse(models, seeds=seeds)
    x = torch.randn(2, 4, 6, 12)
    for model, seed in zip(models, seeds, strict=True):
        share_masks(model, array, seed)
    for _ in range(2):
        array.zero_grad()
        output = array(x)
        output.square().sum().backward()
        for index, model in enumerate(models):
            model.zero_grad()
            expected = model(x[index])
            expected.square().sum().backward()
            assert_near(output[index], expected, f"output {index}")
            own = dict(array.named_parameters())
            for name, parameter in model.named_parameters():
                assert_near(own[name].grad[index], parameter.grad, f"{name} of {index}")


def test_from_the_constructor():
    array = nn.TransformerEncoderLayer(12, 3, 20, batch_first=True, B=2)
    assert array(torch.randn(2, 4, 6, 12)).shape == (2, 4, 6, 12)
    with pytest.raises(InvalidArgument, match="activation"):
        nn.TransformerEncoderLayer(12, 3, activation="tanh", B=2)
