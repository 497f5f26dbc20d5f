# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import nn, stack
from dnnsuite.errors import InvalidArgument
from helpers import check_matches_models, make_models


@pytest.mark.parametrize("padding_idx", [None, 0, 3, -1])
@pytest.mark.parametrize("shape", [(5,), (4, 7)])
def test_matches_models(shape, padding_idx, device):
    models = make_models(lambda: torch.nn.Embedding(11, 6, padding_idx=padding_idx), 3, device=device)
    check_matches_models(models, torch.randint(11, (3, *shape), device=device))


def test_padding_beyond_the_models_is_a_row_and_not_a_model():
    """HFTA's layer zeroes the whole table of model `padding_idx`, and fails when there are fewer models than that."""
    layer = nn.Embedding(11, 6, padding_idx=5, B=2)
    assert not layer.weight[:, 5].any()
    assert layer.weight[0, 4].all()
    assert layer.weight[1, 4].all()


def test_shared_indices_give_each_model_its_own_gradient():
    layer = nn.Embedding(11, 6, B=2)
    indices = torch.tensor([[1, 1, 4]])
    layer(stack(indices, B=2)).sum().backward()
    expected = torch.zeros(11)
    expected[1], expected[4] = 2.0, 1.0
    for gradient in layer.weight.grad:
        assert torch.equal(gradient[:, 0], expected)


@pytest.mark.parametrize("argument", [{"max_norm": 1.0}, {"sparse": True}, {"scale_grad_by_freq": True}])
def test_refuses_what_it_cannot_do(argument):
    with pytest.raises(InvalidArgument, match=next(iter(argument))):
        nn.Embedding(11, 6, **argument, B=2)


def test_refuses_padding_outside_the_table():
    with pytest.raises(InvalidArgument, match="num_embeddings=11"):
        nn.Embedding(11, 6, padding_idx=11, B=2)
