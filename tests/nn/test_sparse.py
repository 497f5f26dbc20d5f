# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import fuse, nn, stack
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, check_matches_models, make_models


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


class Branches(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x) if x.sum() >= 0 else x


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("layer", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_sparse_layers_train_with_dense_gradients(layer, alone):
    def make():
        made = layer(11, 6, sparse=True)
        return Branches(made) if alone else made

    models, x = make_models(make, 2), torch.randint(11, (2, 4, 5))
    array = fuse(models)
    array(x).square().sum().backward()
    for index, model in enumerate(models):
        model(x[index]).square().sum().backward()
    for own, *gradients in zip(array.parameters(), *(m.parameters() for m in models), strict=True):
        assert_near(own.grad, torch.stack([p.grad.to_dense() for p in gradients]))
    model = array[1]
    assert (model.layer if alone else model).sparse, "a model on its own has the user's option"


@pytest.mark.parametrize("layer", [torch.nn.Embedding, torch.nn.EmbeddingBag])
@pytest.mark.parametrize("norm_type", [1.0, 2.0])
def test_max_norm_scales_the_used_rows_of_each_table(layer, norm_type):
    models = make_models(lambda: layer(11, 6, max_norm=1.5, norm_type=norm_type), 3)
    array, indices = fuse(models), torch.randint(11, (3, 4, 5))
    output = array(indices)
    for index, model in enumerate(models):
        assert_near(output[index], model(indices[index]))
        assert_near(array.weight[index], model.weight)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 2])
@pytest.mark.parametrize("include_last_offset", [False, True])
def test_bags_match_models(mode, padding_idx, include_last_offset):
    make = {"mode": mode, "padding_idx": padding_idx, "include_last_offset": include_last_offset}
    models = make_models(lambda: torch.nn.EmbeddingBag(11, 6, **make), 3)
    offsets = torch.tensor([[0, 2, 9], [0, 0, 9], [0, 5, 9]])
    check_matches_models(models, torch.randint(11, (3, 9)), offsets)


def test_weighted_bags_match_models():
    models = make_models(lambda: torch.nn.EmbeddingBag(11, 6, mode="sum"), 2)
    check_matches_models(models, torch.randint(11, (2, 9)), torch.tensor([[0, 2], [0, 4]]), torch.randn(2, 9))


def test_from_pretrained():
    tables, indices = torch.randn(2, 11, 6), torch.randint(11, (2, 4))
    layer = nn.Embedding.from_pretrained(tables, padding_idx=3)
    assert layer.B == 2
    assert not layer.weight.requires_grad
    assert layer.weight.data_ptr() == tables.data_ptr()
    assert torch.equal(layer(indices)[1], tables[1][indices[1]])
    assert type(nn.Embedding.from_pretrained(tables[0])) is torch.nn.Embedding
    bags = nn.EmbeddingBag.from_pretrained(tables, freeze=False, mode="max")
    assert bags.weight.requires_grad
    assert_near(bags(indices.unsqueeze(1))[0, 0], tables[0][indices[0]].amax(0))
    assert type(nn.EmbeddingBag.from_pretrained(tables[0])) is torch.nn.EmbeddingBag
    with pytest.raises(InvalidArgument, match=r"tables \[B, V, D\]"):
        nn.Embedding.from_pretrained(tables[0, 0])


def test_indices_of_32_bits_and_bags_without_offsets():
    layer = nn.Embedding(11, 6, B=2)
    indices = torch.randint(11, (2, 4))
    assert torch.equal(layer(indices.int()), layer(indices))
    with pytest.raises(InvalidArgument, match="offsets"):
        nn.EmbeddingBag(11, 6, B=2)(indices)


def test_refuses_padding_outside_the_table():
    with pytest.raises(InvalidArgument, match="num_embeddings=11"):
        nn.Embedding(11, 6, padding_idx=11, B=2)
