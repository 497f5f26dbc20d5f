# SPDX-License-Identifier: MIT
"""The training workloads that `fused.py` rates: a plain torch model, a batch, and a loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import own_models
import torch

from dnnsuite import data, models
from dnnsuite.nn import functional

Call = Callable[..., Any]


@dataclass(frozen=True)
class Workload:
    """`make()` builds one model, `batch()` draws a batch for it (tensors `[N, ...]`).

    `loss(model, *batch)` is a scalar for a model of torch; `losses(array, *batch)` is `[B]` for an array and a batch
    `[B, N, ...]`. `vmap_loss(model, frozen, *batch)` stands for `loss` under torch.vmap where that has to be written in
    another way; `frozen` is the model with parameters that take no gradient. `total(array, *batch)` is the sum of all
    models' losses by torch alone, for an array that is not dnnsuite's.
    """

    name: str
    make: Callable[[], torch.nn.Module]
    batch: Callable[[], tuple[torch.Tensor, ...]]
    loss: Callable[..., torch.Tensor]
    losses: Callable[..., torch.Tensor]
    total: Callable[..., torch.Tensor]
    vmap_loss: Callable[..., torch.Tensor] | None = None


def _logits(output: Any) -> torch.Tensor:
    """A tensor, the first of a tuple, or that of a model of transformers."""
    return output[0] if isinstance(output, tuple) else getattr(output, "logits", output)


def classify(model: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of `[N, classes]`, or of every position of `[N, L, classes]`."""
    logits = _logits(model(x))
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten())


def classify_array(array: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    logits = _logits(array(x))
    return functional.cross_entropy(logits.flatten(1, -2), y.flatten(1))


def segment(model: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of every pixel of `[N, classes, H, W]`."""
    return torch.nn.functional.cross_entropy(model(x), y)


def segment_array(array: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(array(x), y)


def segment_total(array: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.size(0) * torch.nn.functional.cross_entropy(array(x).flatten(0, 1), y.flatten(0, 1))


def masked(model: Call, tokens: torch.Tensor, positions: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(tokens, positions).flatten(0, -2), y.flatten())


def masked_array(array: Call, tokens: torch.Tensor, positions: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(array(tokens, positions), y.flatten(1))


def total(loss: Call) -> Call:
    """From the mean over all that a model is given: the sum over B models of each one's mean."""
    return lambda array, *batch: batch[0].size(0) * loss(array, *batch)


class GAN(torch.nn.Module):
    """DCGAN's two networks behind one call, so that they are one model."""

    def __init__(self, latent: int, width: int) -> None:
        super().__init__()
        self.generator = models.Generator(latent, width)
        self.discriminator = models.Discriminator(width)

    def forward(self, x: torch.Tensor, generate: bool) -> torch.Tensor:
        return self.generator(x) if generate else self.discriminator(x)


def _adversarial(model: Call, real: torch.Tensor, noise: torch.Tensor, leading: int) -> torch.Tensor:
    """Losses of discriminator and generator in one; each network's gradient is that of its own loss.

    The generator's passes through the discriminator as a number, so the discriminator's parameters are left out of it.
    """
    softplus = torch.nn.functional.softplus
    fake = model(noise, generate=True)
    judged = softplus(-model(real, generate=False)).mean(-1) + softplus(model(fake.detach(), generate=False)).mean(-1)
    images = fake.detach().requires_grad_()
    fooled = softplus(-model(images, generate=False)).mean(-1)
    (gradient,) = torch.autograd.grad(fooled.sum(), images)
    return judged + (fake * gradient).flatten(leading).sum(-1)


def adversarial(model: Call, real: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    return _adversarial(model, real, noise, 0)


def adversarial_array(array: Call, real: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    return _adversarial(array, real, noise, 1)


def adversarial_total(array: Call, real: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    return adversarial_array(array, real, noise).sum()


def adversarial_vmap(model: Call, frozen: Call, real: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    softplus = torch.nn.functional.softplus
    fake = model(noise, generate=True)
    judged = softplus(-model(real, generate=False)) + softplus(model(fake.detach(), generate=False))
    return (judged + softplus(-frozen(fake, generate=False))).mean()


def _features(n: int, width: int, classes: int = 10) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randn(n, width), torch.randint(classes, (n,)))


def _images(n: int = 32, size: int = 32, channels: int = 3) -> tuple[torch.Tensor, ...]:
    return torch.randn(n, channels, size, size), torch.randint(10, (n,))


def _pixels() -> tuple[torch.Tensor, ...]:
    return torch.randn(8, 3, 32, 32), torch.randint(4, (8, 32, 32))


def _tokens(vocab: int, n: int, length: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    def draw() -> tuple[torch.Tensor, ...]:
        x = torch.randint(vocab, (n, length + 1))
        return x[:, :-1].contiguous(), x[:, 1:].contiguous()

    return draw


def _vision(name: str) -> Callable[[], torch.nn.Module]:
    return lambda: getattr(data.import_torchvision().models, name)(num_classes=10)


def _vit() -> torch.nn.Module:
    make = data.import_torchvision().models.VisionTransformer
    return make(32, 4, 4, 4, 128, 256, dropout=0.1, num_classes=10)


def _swin() -> torch.nn.Module:
    """Swin-T at a third of its widths, and with windows for small images."""
    make = data.import_torchvision().models.SwinTransformer
    return make([2, 2], 32, [2, 2, 6, 2], [1, 2, 4, 8], [4, 4], stochastic_depth_prob=0.2, num_classes=10)


def _gpt2() -> torch.nn.Module:
    data.import_torchvision()  # transformers would import it, and fail where it does not belong to this torch
    import transformers

    config = transformers.GPT2Config(
        vocab_size=4096, n_positions=64, n_embd=128, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def _bert() -> torch.nn.Module:
    return models.BERT(torch.nn, 10_000, emsize=128, nhid=512, nlayers=2, nhead=2, max_len=64)


def _bert_batch() -> tuple[torch.Tensor, ...]:
    positions = torch.stack([torch.randperm(64)[:10] for _ in range(8)])
    return torch.randint(10_000, (8, 64)), positions, torch.randint(10_000, (8, 10))


def _classifier(name: str, make: Any, batch: Any) -> Workload:
    return Workload(name, make, batch, classify, classify_array, total(classify))


def _imagenet(name: str) -> Workload:
    return _classifier(name, _vision(name), _images)


WORKLOADS = {
    workload.name: workload
    for workload in (
        _classifier("mlp_s", lambda: models.MLP((64, 128, 128, 10)), _features(32, 64)),
        _classifier("mlp_m", lambda: models.MLP((784, 512, 256, 10)), _features(64, 784)),
        _classifier(
            "pointnet", lambda: models.PointNetClassifier(16), lambda: (torch.randn(8, 3, 256), torch.randint(16, (8,)))
        ),
        Workload(
            "dcgan",
            lambda: GAN(100, 16),
            lambda: (torch.rand(16, 3, 64, 64), torch.randn(16, 100, 1, 1)),
            adversarial,
            adversarial_array,
            adversarial_total,
            adversarial_vmap,
        ),
        _classifier("transformer_lm", lambda: models.TransformerLanguageModel(10_000), _tokens(10_000, 20, 35)),
        Workload("bert", _bert, _bert_batch, masked, masked_array, total(masked)),
        _imagenet("resnet18"),
        _imagenet("mobilenet_v2"),
        _imagenet("mobilenet_v3_small"),
        _imagenet("mobilenet_v3_large"),
        _classifier("lstm", lambda: models.LSTMLanguageModel(10_000), _tokens(10_000, 20, 35)),
        _classifier("cnn", own_models.tutorial_cnn, lambda: _images(64, 28, 1)),
        _classifier("vgg", own_models.vgg, _images),
        _imagenet("squeezenet1_1"),
        Workload("unet", own_models.UNet, _pixels, segment, segment_array, segment_total),
        _classifier("swin", _swin, lambda: _images(8)),
        _classifier("vit", _vit, lambda: _images(16)),
        _classifier("gpt2", _gpt2, _tokens(4096, 8, 32)),
        _classifier("gru", own_models.GRUClassifier, lambda: (torch.randn(32, 40, 32), torch.randint(10, (32,)))),
        _classifier("tabular_resnet", own_models.TabularResNet, _features(128, 32)),
        _classifier("deq", own_models.DEQ, _features(64, 64)),
    )
}
