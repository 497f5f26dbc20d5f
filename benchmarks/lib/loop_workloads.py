# SPDX-License-Identifier: MIT
"""Models that an array cannot fuse, or gains little from, for comparisons with a plain loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import own_models
import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Workload:
    """A model without arguments, and the shape of one model's input."""

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    tokens: int = 0  # inputs are whole numbers below it, if not 0

    def models(self, B: int) -> list[nn.Module]:
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the old weight_norm says that it is old
            return [self.make() for _ in range(B)]

    def batch(self, B: int) -> torch.Tensor:
        torch.manual_seed(1)
        if self.tokens:
            return torch.randint(self.tokens, (B, *self.shape))
        return torch.randn(B, *self.shape)


def losses_of(output: torch.Tensor) -> torch.Tensor:
    """Return the losses `[B]` of outputs `[B, ...]`."""
    return output.flatten(1).square().mean(1)


def conv_net(norm: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """Return a discriminator, the use of spectral and weight normalization."""
    return nn.Sequential(
        norm(nn.Conv2d(3, 16, 3, 2, 1)),
        nn.LeakyReLU(0.1),
        norm(nn.Conv2d(16, 32, 3, 2, 1)),
        nn.LeakyReLU(0.1),
        nn.Flatten(),
        norm(nn.Linear(32 * 64, 1)),
    )


class Tiny(nn.Module):
    """Branch on a value, in a model of a few numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        h = self.layer(x)
        return h if h.sum() > 0 else -h


class FixedPoint(nn.Module):
    """Deep equilibrium layer that iterates until a tolerance is met."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        z = torch.zeros_like(x)
        for _ in range(10):
            new = torch.tanh(0.3 * self.inner(z) + x)
            if (new - z).norm().item() < 1e-3:
                break
            z = new
        return self.outer(z)


class FloatMean(nn.Module):
    """Python number of a tensor, as old code has it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 128), nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        return self.b(torch.relu(self.a(x - float(x.mean()))))


class Numpy(nn.Module):
    """Weights of samples from numpy."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 128), nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        weight = torch.from_numpy(abs(x.detach().numpy()).mean(1, keepdims=True))
        return self.b(torch.relu(self.a(x * weight)))


class Nonzero(nn.Module):
    """Rows chosen by a mask: as many as there are."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 128), nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        h = torch.relu(self.a(x))
        chosen = (x.mean(1) > 0).nonzero().squeeze(1)
        return h.mean(0) + self.b(h[chosen]).sum(0).mean()


class Experts(nn.Module):
    """Mixture of experts: each takes the tokens that the router sends to it."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(32, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(4))

    def forward(self, x: Any) -> Any:
        weights, chosen = self.router(x).softmax(-1).topk(2, dim=-1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            token, rank = torch.where(chosen == index)
            out.index_add_(0, token, expert(x[token]) * weights[token, rank, None])
        return out


class Gaussian(nn.Module):
    """Variational autoencoder by torch.distributions, which validates its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(64, 32), nn.Linear(16, 64)

    def forward(self, x: Any) -> Any:
        mean, scale = self.encoder(x).chunk(2, -1)
        posterior = torch.distributions.Normal(mean, F.softplus(scale) + 1e-3)
        prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
        z = posterior.rsample()
        kl = torch.distributions.kl_divergence(posterior, prior).sum(-1, keepdim=True)
        return self.decoder(z) - x + kl


class VectorQuantized(nn.Module):
    """VQ-VAE with a codebook that follows its vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Conv2d(3, 16, 4, 2, 1), nn.ConvTranspose2d(16, 3, 4, 2, 1)
        self.codes = nn.Embedding(32, 16)
        self.register_buffer("used", torch.zeros(32))

    def forward(self, x: Any) -> Any:
        z = self.encoder(x).permute(0, 2, 3, 1)
        flat = z.reshape(-1, 16)
        index = torch.cdist(flat, self.codes.weight).argmin(1)
        if self.training:
            self.used.mul_(0.99).add_(torch.bincount(index, minlength=32).float(), alpha=0.01)
        q = self.codes(index).view(z.shape)
        out = self.decoder((z + (q - z).detach()).permute(0, 3, 1, 2))
        return (out - x).flatten(1).mean(1) + F.mse_loss(q, z.detach()) + F.mse_loss(z, q.detach())


class Gate(nn.Module):
    """A branch on data between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Any) -> Any:
        return self.a(x) if x.sum() > 0 else self.b(x)


class Gated(nn.Module):
    """README's model with a `Gate` among other layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), Gate(), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Packed(nn.Module):
    """LSTM over sequences of lengths that the data has."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.rnn, self.head = nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 5)

    def forward(self, tokens: Any) -> Any:
        lengths = (tokens > 5).sum(1).clamp(min=1)
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        return self.head(self.rnn(packed)[1][0][-1])


class Fire(nn.Module):
    """Block of SqueezeNet."""

    def __init__(self, channels: int, narrow: int, wide: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, narrow, 1)
        self.one, self.three = nn.Conv2d(narrow, wide, 1), nn.Conv2d(narrow, wide, 3, padding=1)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)


def squeezenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(64, 16, 64),
        Fire(128, 16, 64),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(128, 32, 128),
        Fire(256, 32, 128),
        nn.Dropout(0.5),
        nn.Conv2d(256, 10, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


class Inception(nn.Module):
    """Block of GoogLeNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()

        def layer(inputs: int, outputs: int, size: int) -> nn.Module:
            conv = nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False)
            return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))

        self.one = layer(channels, 16, 1)
        self.three = nn.Sequential(layer(channels, 24, 1), layer(24, 32, 3))
        self.five = nn.Sequential(layer(channels, 4, 1), layer(4, 8, 5))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), layer(channels, 8, 1))

    def forward(self, x: Any) -> Any:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)


def inception() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        Inception(32),
        Inception(64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


class Fourier(nn.Module):
    """Spectral convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.real, self.imaginary = (nn.Parameter(torch.randn(16, 16, 9) * 0.05) for _ in range(2))
        self.lift, self.head = nn.Linear(1, 16), nn.Linear(16, 1)

    def forward(self, x: Any) -> Any:
        h = self.lift(x).transpose(1, 2)
        low = torch.fft.rfft(h)[..., :9]
        mixed = torch.einsum("nip,iop->nop", low.conj(), torch.complex(self.real, self.imaginary))
        h = torch.relu(torch.fft.irfft(mixed, n=h.size(-1)) + h)
        return self.head(h.transpose(1, 2))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


_ALL = (
    Workload("tiny", Tiny, (8, 4)),
    Workload("spectral_norm", lambda: conv_net(nn.utils.spectral_norm), (8, 3, 32, 32)),
    Workload("weight_norm", lambda: conv_net(nn.utils.weight_norm), (8, 3, 32, 32)),
    Workload("fixed_point", FixedPoint, (32, 64)),
    Workload("float_mean", FloatMean, (32, 64)),
    Workload("numpy", Numpy, (32, 64)),
    Workload("nonzero", Nonzero, (32, 64)),
    Workload("experts", Experts, (64, 32)),
    Workload("distributions", Gaussian, (32, 64)),
    Workload("vq_vae", VectorQuantized, (8, 3, 16, 16)),
    Workload("gate", Gate, (32, 64)),
    Workload("gated", Gated, (32, 32)),
    Workload("packed_lstm", Packed, (16, 12), tokens=50),
    Workload("squeezenet", squeezenet, (8, 3, 48, 48)),
    Workload("inception", inception, (8, 3, 24, 24)),
    Workload("fourier", Fourier, (16, 32, 1)),
    Workload("tutorial_cnn", own_models.tutorial_cnn, (64, 1, 28, 28)),
    Workload("mlp", mlp, (32, 64)),
)
WORKLOADS = {work.name: work for work in _ALL}
