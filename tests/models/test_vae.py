# SPDX-License-Identifier: MIT
import torch

from dnnsuite import models


def test_its_parameters():
    expected = sum(a * b + b for a, b in [(784, 400), (400, 20), (400, 20), (20, 400), (400, 784)])
    assert sum(p.numel() for p in models.VAE().parameters()) == expected == 652824


def test_the_code_is_drawn_from_the_normal_distribution_it_gives():
    model = models.VAE(pixels=12, hidden=8, latent=3)
    x = torch.rand(5, 12)
    torch.manual_seed(1)
    reconstruction, mean, log_variance = model(x)
    torch.manual_seed(1)
    code = mean + torch.randn(5, 3) * log_variance.exp().sqrt()
    hidden = torch.relu(model.expander(code))
    torch.testing.assert_close(reconstruction, torch.sigmoid(model.decoder(hidden)))
    assert reconstruction.shape == (5, 12)


def test_the_loss_is_the_negative_evidence_bound():
    x, reconstruction = torch.rand(4, 6).round(), torch.rand(4, 6) * 0.9 + 0.05
    mean, log_variance = torch.randn(4, 2), torch.randn(4, 2)
    code = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    divergence = torch.distributions.kl_divergence(code, torch.distributions.Normal(0.0, 1.0)).sum()
    likelihood = torch.distributions.Bernoulli(reconstruction).log_prob(x).sum()
    torch.testing.assert_close(models.negative_elbo(reconstruction, x, mean, log_variance), divergence - likelihood)
