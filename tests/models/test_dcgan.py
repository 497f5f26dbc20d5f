# SPDX-License-Identifier: MIT
import torch

from dnnsuite import models


def test_images_and_logits():
    images = models.Generator(latent=7, width=4)(torch.randn(3, 7, 1, 1))
    assert images.shape == (3, 3, 64, 64)
    assert images.abs().max() <= 1
    assert models.Discriminator(width=4)(images).shape == (3,)
    assert models.Discriminator(width=4, channels=1)(images[:, :1]).shape == (3,)


def test_starts_as_in_the_paper():
    torch.manual_seed(1)
    model = models.Generator(width=16)
    weight, norm = model.layers[3].weight, model.layers[4]
    assert abs(weight.std().item() - 0.02) < 5e-4
    assert abs(norm.weight.mean().item() - 1) < 0.01
    assert not norm.bias.any()


def test_a_discriminator_learns_what_is_real():
    net = models.Discriminator(width=4)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    real, fake = torch.rand(8, 3, 64, 64), -torch.rand(8, 3, 64, 64)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = torch.nn.functional.softplus(torch.cat([-net(real), net(fake)])).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
