# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import StepRunner, fuse, nn, ops, optim
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn._array import PRODUCTS

BOTH = (*PRODUCTS, nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d)


class First(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


class ToItself(First):
    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]


def encoder(norm_first):
    rest = {"batch_first": True, "norm_first": norm_first, "activation": "gelu"}  # rounding moves ReLU's edge
    return lambda: torch.nn.TransformerEncoderLayer(16, 2, 32, 0.0, **rest)


MODELS = {
    "one layer": (lambda: torch.nn.Linear(32, 24), (16, 32)),
    "linear": (lambda: torch.nn.Sequential(torch.nn.Linear(32, 24), torch.nn.LayerNorm(24)), (16, 32)),
    "attention": (lambda: ToItself(torch.nn.MultiheadAttention(16, 2, batch_first=True)), (3, 5, 16)),
    "transformer": (encoder(False), (3, 5, 16)),
    "transformer, norm first": (encoder(True), (3, 5, 16)),
    "lstm": (lambda: First(torch.nn.LSTM(8, 12, 2)), (5, 3, 8)),
    "gru": (lambda: First(torch.nn.GRU(8, 12)), (5, 3, 8)),
    "convolution": (lambda: torch.nn.Conv2d(8, 12, 3, padding=1), (2, 8, 9, 9)),
    "depthwise": (lambda: torch.nn.Conv2d(8, 8, 5, padding=2, groups=8), (2, 8, 9, 9)),
    "line": (lambda: torch.nn.Conv1d(8, 12, 3), (2, 8, 9)),
    "transposed": (lambda: torch.nn.ConvTranspose2d(8, 12, 4, 2, 1), (2, 8, 5, 5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_products_in_sixteen_bits_and_all_else_in_thirty_two(name):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    models = [make() for _ in range(2)]
    array, x = fuse(models), torch.randn(2, *shape)
    exact = array(x)
    weights = torch.randn_like(exact)
    (exact * weights).sum().backward()
    gradients = {name: parameter.grad.clone() for name, parameter in array.named_parameters()}
    array.zero_grad()
    assert nn.compute_dtype(array, torch.bfloat16, BOTH) is array
    rounded = array(x)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0.05, atol=0.05)
    (rounded * weights).sum().backward()
    for name, parameter in array.named_parameters():
        assert parameter.dtype == torch.float32, name
        assert parameter.grad is not None, name
        assert parameter.grad.dtype == torch.float32, name
        size = float(gradients[name].abs().max())
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=0.1, atol=0.1 * size + 1e-3)
    nn.compute_dtype(array, None, BOTH)
    assert torch.equal(array(x), exact)


def test_every_product_of_a_transformers_layer_is_rounded_by_default(monkeypatch):
    array = fuse([encoder(False)() for _ in range(2)])
    nn.compute_dtype(array, torch.bfloat16)
    asked = []
    product = ops.linear
    spy = lambda *args, dtype=None, **rest: asked.append(dtype) or product(*args, dtype=dtype, **rest)  # noqa: E731
    monkeypatch.setattr(ops, "linear", spy)
    array(torch.randn(2, 3, 5, 16))
    assert asked == [torch.bfloat16] * 4


def test_convolutions_are_left_alone_unless_asked_for():
    layer = nn.Conv2d(3, 4, 3, B=2)
    assert nn.compute_dtype(layer, torch.bfloat16).compute_dtype is None
    assert nn.compute_dtype(layer, torch.bfloat16, nn.Conv2d).compute_dtype is torch.bfloat16


def test_refuses_what_cannot():
    layer = nn.Linear(3, 4, B=2)
    with pytest.raises(InvalidArgument, match="float64"):
        nn.compute_dtype(layer, torch.float64)
    with pytest.raises(InvalidArgument, match="LayerNorm cannot"):
        nn.compute_dtype(layer, torch.bfloat16, nn.LayerNorm)


@pytest.mark.parametrize("width", [1, 2])
def test_the_parts_of_a_step_runner_do_the_same(width):
    models = [torch.nn.Sequential(torch.nn.Linear(32, 24), torch.nn.Linear(24, 4)) for _ in range(2)]
    array = nn.compute_dtype(fuse(models), torch.bfloat16)
    x = torch.randn(2, 16, 32)
    expected = array(x).square().mean((1, 2)).detach()
    optimizer = optim.SGD(array.parameters(), lr=0.0)
    with StepRunner(array, optimizer, lambda a, x: a(x).square().mean((1, 2)), threads=1, width=width) as runner:
        losses = [runner.step(x).losses() for _ in range(5)]
    assert runner.mode == "captured"
    for value in losses:
        assert torch.equal(value, expected)
    assert nn.compute_dtype(array, None)(x).square().mean((1, 2)).tolist() != expected.tolist()
