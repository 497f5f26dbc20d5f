# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import ops
from dnnsuite.errors import InvalidArgument


@pytest.mark.parametrize("B", [1, 3])
def test_any_rows(B):
    """[B, I], [B, N, I], [B, N, L, I], also views that are not contiguous."""
    weight, bias = torch.randn(B, 4, 6), torch.randn(B, 4)
    for shape in ((B, 6), (B, 5, 6), (B, 5, 2, 6)):
        x = torch.randn(*shape[:-1], 12)[..., ::2]
        y = ops.linear(x, weight, bias)
        assert y.shape == (*shape[:-1], 4)
        for model in range(B):
            expected = torch.nn.functional.linear(x[model], weight[model], bias[model])
            torch.testing.assert_close(y[model], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "bias", "message"),
    [
        ((2, 5, 7), None, r"B = 2 and I = 6 as in weight \[2, 4, 6\], not \[2, 5, 7\]"),
        ((3, 5, 6), None, r"not \[3, 5, 6\]"),
        ((6,), None, r"not \[6\]"),
        ((2, 5, 6), (4,), r"bias must be \[2, 4\], not \[4\]"),
    ],
)
def test_bad_arguments(x, bias, message):
    with pytest.raises(InvalidArgument, match=message):
        ops.linear(torch.ones(x), torch.ones(2, 4, 6), None if bias is None else torch.ones(bias))
