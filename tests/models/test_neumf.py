# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.models.perceptrons import NeuMF


def test_forward_by_hand():
    torch.manual_seed(0)
    model = NeuMF(5, 7, factors=3, layers=(4, 6, 2))
    users, items = torch.tensor([0, 4, 2]), torch.tensor([6, 1, 1])
    product = model.mf_user.weight[users] * model.mf_item.weight[items]
    x = torch.cat([model.mlp_user.weight[users], model.mlp_item.weight[items]], dim=1)
    for layer in model.mlp:
        x = (x @ layer.weight.T + layer.bias).clamp(min=0)
    expected = torch.cat([product, x], dim=1) @ model.final.weight[0] + model.final.bias
    torch.testing.assert_close(model(users, items), expected)


def test_initial_values():
    model = NeuMF(2000, 1000)
    assert float(model.mf_user.weight.detach().std()) == pytest.approx(0.01, rel=0.02)
    assert float(model.mlp_item.weight.detach().std()) == pytest.approx(0.01, rel=0.02)
    for layer, limit in zip(
        [*model.mlp, model.final], [(6 / 512) ** 0.5, (6 / 384) ** 0.5, (6 / 192) ** 0.5, (3 / 128) ** 0.5], strict=True
    ):
        assert float(layer.weight.detach().abs().max()) == pytest.approx(limit, rel=0.05)


def test_odd_input_is_refused():
    with pytest.raises(InvalidArgument, match=r"even width, got \[3, 2\]"):
        NeuMF(2, 2, layers=(3, 2))
