# SPDX-License-Identifier: MIT
"""Buffers and parameters that a forward registers, replaces or lets grow."""

import copy

import pytest
import torch

from dnnsuite import StepRunner, fuse, nn, optim
from dnnsuite.errors import InvalidArgument

B, RATES = 3, (0.1, 0.2, 0.3)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.slope = torch.nn.Linear(6, 6), torch.nn.Parameter(torch.randn(()))


class GrowingCache(Layer):
    """Biases by distance, made anew for longer inputs, as models for text keep them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("bias", None, persistent=False)

    def forward(self, x):
        length = x.shape[-2]
        if self.bias is None or self.bias.shape[-1] < length:
            distances = torch.arange(length, dtype=x.dtype)[None]
            self.register_buffer("bias", distances * self.slope.detach(), persistent=False)
        return self.linear(x) + self.bias[..., :length].mean()


class MeanFromTheFirstBatch(Layer):
    def forward(self, x):
        h = self.linear(x)
        now = h.detach().mean((0, 1))
        if not hasattr(self, "mean"):
            self.register_buffer("mean", now)
        else:
            self.mean = 0.5 * self.mean + 0.5 * now
        return h - self.mean


class WithHistory(Layer):
    """The buffer is computed from a parameter, which learns through it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(6))

    def forward(self, x):
        self.scale = self.linear.weight.mean(0) * self.slope
        return self.linear(x) * self.scale.sin()


def losses(array, x):
    return array(x).square().flatten(1).mean(1)


@pytest.mark.parametrize("kind", [GrowingCache, MeanFromTheFirstBatch, WithHistory])
@pytest.mark.parametrize("options", [None, {"threads": 1}, {"threads": 2, "width": 1}, {"threads": 2, "width": 2}])
def test_they_are_those_of_separate_models(kind, options):
    models = [kind().double() for _ in range(B)]
    alone = copy.deepcopy(models)
    array = fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=RATES)
    optimizers = [torch.optim.SGD(model.parameters(), lr=lr) for model, lr in zip(alone, RATES, strict=True)]
    runner = None if options is None else StepRunner(array, optimizer, losses, **options)
    for step in range(10):
        x = torch.randn(B, 2, 4 if step < 6 else 8, 6).double()
        if runner is None:
            array_losses = losses(array, x)
            optimizer.zero_grad()
            array_losses.sum().backward()
            optimizer.step()
        else:
            array_losses = runner.step(x).losses()
        for model, one, part, loss in zip(alone, optimizers, x, array_losses, strict=True):
            own = model(part).square().mean()
            one.zero_grad()
            own.backward()
            one.step()
            torch.testing.assert_close(loss.detach(), own.detach())
    if runner is not None:
        runner.close()
    for index, model in enumerate(alone):
        torch.testing.assert_close(dict(array[index].named_buffers()), dict(model.named_buffers()))
        torch.testing.assert_close(array[index].state_dict(), model.state_dict())


class Registers(Layer):
    def forward(self, x):
        self.register_parameter("late", torch.nn.Parameter(x.detach().mean()))
        return self.linear(x)


class Assigns(Layer):
    def forward(self, x):
        self.late = torch.nn.Parameter(x.detach().mean())
        return self.linear(x)


class AssignsAConstant(Layer):
    def forward(self, x):
        self.late = torch.nn.Parameter(torch.zeros(6))
        return self.linear(x)


@pytest.mark.parametrize("kind", [Registers, Assigns, AssignsAConstant])
def test_a_parameter_that_a_forward_makes_is_refused(kind):
    array = fuse([kind() for _ in range(B)])
    with pytest.raises(InvalidArgument, match=f"forward of {kind.__name__} makes the parameter late"):
        array(torch.randn(B, 2, 6))


def test_another_name_for_a_parameter_is_none_that_is_made():
    class Renames(Layer):
        def forward(self, x):
            self.alias = self.slope
            return self.linear(x) * self.alias

    models = [Renames() for _ in range(B)]
    x = torch.randn(B, 2, 6)
    expected = torch.stack([copy.deepcopy(model)(part) for model, part in zip(models, x, strict=True)])
    torch.testing.assert_close(fuse(models)(x), expected)
    assert nn.functional.mse_loss(fuse(models)(x), expected).max() < 1e-10
