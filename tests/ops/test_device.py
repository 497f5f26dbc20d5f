# SPDX-License-Identifier: MIT
"""A CPU that stands in for a GPU: the ways of a GPU, on it."""

import pytest
import torch

from dnnsuite import data, fuse, models, stack
from dnnsuite.nn import functional
from dnnsuite.ops.device import cpu_for_gpu, numbers, on_cpu, on_gpu


def test_a_cpu_stands_in_inside_of_the_block_only():
    x = torch.ones(2)
    assert (on_cpu(x), on_gpu(x)) == (True, False)
    with cpu_for_gpu():
        with pytest.raises(ZeroDivisionError), cpu_for_gpu():
            raise ZeroDivisionError
        assert (on_cpu(x), on_gpu(x)) == (False, True)
    assert (on_cpu(x), on_gpu(x)) == (True, False)
    meta = x.to("meta")
    assert (on_cpu(meta), on_gpu(meta)) == (False, False)


@pytest.mark.parametrize("values", [[0.1, 0.1, 0.1], [1.0, -2.5, 3.0], [7.0]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_few_numbers_are_filled_in_on_a_gpu(values, dtype, monkeypatch):
    expected = torch.tensor(values, dtype=dtype)
    assert torch.equal(numbers(values, dtype, torch.device("cpu")), expected)
    monkeypatch.setattr(torch, "tensor", None)  # it would copy from the host's memory
    with cpu_for_gpu():
        assert torch.equal(numbers(values, dtype, torch.device("cpu")), expected)


def small_net():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3, padding=1, groups=8),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 4, 1),
        torch.nn.Flatten(),
        torch.nn.LayerNorm(16),
        torch.nn.Linear(16, 5),
    )


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (small_net, lambda: torch.randn(3, 6, 3, 8, 8, dtype=torch.float64)),
        (lambda: models.LSTMLanguageModel(11, 6, 6), lambda: torch.randint(11, (3, 4, 5))),
        (lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0), lambda: torch.randn(3, 5, 4, 8).double()),
    ],
)
def test_the_ways_of_a_gpu_give_what_those_of_a_cpu_do(make, x):
    torch.manual_seed(0)
    plain = [make().double() for _ in range(3)]
    x = x()
    results = []
    for gpu in (False, True):
        array = fuse(plain)
        array.eval()
        with cpu_for_gpu() if gpu else torch.enable_grad():
            y = array(x)
            y = y[0] if isinstance(y, tuple) else y
            functional.mse_loss(y, torch.zeros_like(y)).sum().backward()
        results.append([y, *(p.grad for p in array.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_torchvisions_models_are_fused_whole_on_a_gpu(name):
    """Nothing falls back to model by model, in training, with activations in place; gradients are the plain models'."""
    torch.manual_seed(0)
    make = getattr(data.import_torchvision().models, name)
    plain = [make(num_classes=3).double() for _ in range(2)]
    for dropout in (m for model in plain for m in model.modules() if isinstance(m, torch.nn.Dropout)):
        dropout.p = 0.0
    x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    with cpu_for_gpu():
        array = fuse(plain)
        array(stack(x, 2)).square().sum().backward()
    assert {cover.how for cover in array.coverage()} <= {"fused", "elementwise", "vmap", "forward"}
    for model in plain:
        model(x).square().sum().backward()
    for one, other in zip(array.parameters(), zip(*(m.parameters() for m in plain), strict=True), strict=True):
        torch.testing.assert_close(one.grad, torch.stack([p.grad for p in other]), rtol=1e-6, atol=1e-8)
