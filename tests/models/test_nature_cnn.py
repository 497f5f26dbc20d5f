# SPDX-License-Identifier: MIT
import torch

from dnnsuite.models.convolutional import NatureCNN


def test_heads_share_a_body_that_sees_bytes_as_fractions():
    torch.manual_seed(0)
    model = NatureCNN(6)
    images = torch.randint(256, (3, 4, 84, 84), dtype=torch.uint8)
    features = model.body(images / 255)
    assert features.shape == (3, 512)
    logits, value = model(images)
    torch.testing.assert_close(logits, features @ model.policy.weight.T + model.policy.bias)
    torch.testing.assert_close(value, features @ model.value.weight[0] + model.value.bias)


def test_weights_are_orthogonal():
    model = NatureCNN(6)
    for layer, gain in ((model.body[0], 2**0.5), (model.body[7], 2**0.5), (model.policy, 0.01), (model.value, 1.0)):
        rows = layer.weight.detach().flatten(1)
        torch.testing.assert_close(rows @ rows.T, gain**2 * torch.eye(len(rows)), atol=1e-4, rtol=0)
        assert not layer.bias.any()
