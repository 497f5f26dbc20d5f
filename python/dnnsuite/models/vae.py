# SPDX-License-Identifier: MIT
"""A variational auto-encoder of two fully connected layers each way (Kingma and Welling, ICLR 2014)."""

from __future__ import annotations

import torch
from torch import nn


class VAE(nn.Module):
    """Pixels `[N, pixels]` in [0, 1] to their reconstruction and the mean and log variance of the code `[N, latent]`.

    784-400-20-400-784 has 652 824 parameters.
    """

    def __init__(self, pixels: int = 784, hidden: int = 400, latent: int = 20) -> None:
        super().__init__()
        self.encoder = nn.Linear(pixels, hidden)
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.expander = nn.Linear(latent, hidden)
        self.decoder = nn.Linear(hidden, pixels)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = self.encoder(x).relu()
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        deviation = torch.exp(0.5 * log_variance)
        code = mean + torch.randn_like(deviation) * deviation
        return self.decoder(self.expander(code).relu()).sigmoid(), mean, log_variance


def negative_elbo(
    reconstruction: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, log_variance: torch.Tensor
) -> torch.Tensor:
    """Return the binary cross-entropy plus the divergence from N(0, 1), summed over the batch, `[]` (their appendix B).

    Args:
        reconstruction, x: pictures `[N, 784]` between 0 and 1.
        mean, log_variance: mean and log-variance of the latent variables, `[N, 20]`.
    """
    entropy = nn.functional.binary_cross_entropy(reconstruction, x, reduction="sum")
    return entropy - 0.5 * torch.sum(1 + log_variance - mean.square() - log_variance.exp())
