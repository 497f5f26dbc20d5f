# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import models
from dnnsuite.errors import InvalidArgument


def test_flattens_and_scores():
    model = models.MLP((12, 8, 5))
    x = torch.randn(4, 3, 2, 2)
    hidden = torch.relu(model.layers[0](x.flatten(1)))
    torch.testing.assert_close(model(x), model.layers[1](hidden))
    assert model(x).shape == (4, 5)


def test_tied_hidden_layers_share_their_weight_and_its_gradient():
    model = models.MLP((6, 6, 6, 6, 3), tied=True)
    assert len(list(model.parameters())) == 1 + 3 + 2  # one weight for the three, their biases, the head
    x = torch.randn(2, 6)
    model(x).sum().backward()
    tied = model.layers[0].weight.grad

    alone = models.MLP((6, 6, 6, 6, 3))
    alone.load_state_dict(model.state_dict())
    alone(x).sum().backward()
    torch.testing.assert_close(tied, sum(alone.layers[i].weight.grad for i in range(3)))


def test_refuses_too_few_sizes():
    with pytest.raises(InvalidArgument, match=r"two or more sizes.*\[3\]"):
        models.MLP((3,))
