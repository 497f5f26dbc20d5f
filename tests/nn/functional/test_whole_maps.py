# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.nn import functional


def agree(y, truth, inputs):
    """Check values and gradients."""
    grad = torch.randn_like(truth)
    got, wanted = (torch.autograd.grad(z, inputs, grad) for z in (y, truth))
    torch.testing.assert_close((y, *got), (truth, *wanted))


@pytest.mark.parametrize("samples", [2, 40])
@pytest.mark.parametrize("last", [False, True])
def test_filters_of_the_whole_map(samples, last):
    """Forty samples are more numbers than the filters: of the two the filters are put in the other order then."""
    x = torch.randn(3, samples, 6, 4, 5, dtype=torch.float64)
    x = (x.movedim(2, -1).contiguous().movedim(-1, 2) if last else x).requires_grad_()
    weight = torch.randn(3, 7, 6, 4, 5, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    own = (x, weight, bias)
    y = functional.conv2d(*own, stride=3)
    truth = torch.stack([torch.nn.functional.conv2d(*one) for one in zip(*own, strict=True)])
    agree(y, truth, own)


def test_a_model_alone_has_the_bits_that_it_has_among_others():
    x, weight = torch.randn(5, 8, 16, 4, 4), torch.randn(5, 12, 16, 4, 4)
    z, transposed = torch.randn(5, 8, 16, 1, 1), torch.randn(5, 16, 12, 4, 4)
    together, made = functional.conv2d(x, weight), functional.conv_transpose2d(z, transposed)
    for i in range(5):
        one = slice(i, i + 1)
        assert torch.equal(functional.conv2d(x[one], weight[one])[0], together[i])
        assert torch.equal(functional.conv_transpose2d(z[one], transposed[one])[0], made[i])


@pytest.mark.parametrize(
    "rest",
    [
        {"stride": 3},
        {"padding": 1},  # these are torch's
        {"output_padding": 1, "stride": 2},
        {"dilation": 2},
        {"groups": 2},
    ],
)
@pytest.mark.parametrize("with_bias", [False, True])
def test_transposed_from_single_pixels(rest, with_bias):
    x = torch.randn(3, 2, 6, 1, 1, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 6, 4, 4, 5, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, 4 * rest.get("groups", 1), dtype=torch.float64, requires_grad=True)
    own = (x, weight, bias) if with_bias else (x, weight)
    y = functional.conv_transpose2d(*own, **rest)
    plain = torch.nn.functional.conv_transpose2d
    truth = torch.stack([plain(*one, **rest) for one in zip(*own, strict=True)])
    agree(y, truth, own)


def test_transposed_from_single_pixels_in_sixteen_bits():
    x, weight = torch.randn(2, 3, 6, 1, 1), torch.randn(2, 6, 4, 4, 4)
    expected = functional.conv_transpose2d(x, weight)
    with torch.autocast("cpu", torch.bfloat16):
        y = functional.conv_transpose2d(x, weight)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), expected, rtol=3e-2, atol=3e-2)
