# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import fuse, nn
from dnnsuite.errors import InvalidArgument


def test_products_in_sixteen_bits_and_all_else_in_thirty_two():
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(32, 24), torch.nn.LayerNorm(24)) for _ in range(2)]
    array, x = fuse(models), torch.randn(2, 16, 32)
    exact = array(x)
    assert nn.compute_dtype(array, torch.bfloat16) is array
    rounded = array(x)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0.05, atol=0.05)
    rounded.square().sum().backward()
    for name, parameter in array.named_parameters():
        assert parameter.dtype == torch.float32, name
        assert parameter.grad is not None, name
        assert parameter.grad.dtype == torch.float32, name
    nn.compute_dtype(array, None)
    assert torch.equal(array(x), exact)


def test_refuses_what_cannot():
    layer = nn.Linear(3, 4, B=2)
    with pytest.raises(InvalidArgument, match="float64"):
        nn.compute_dtype(layer, torch.float64)
    with pytest.raises(InvalidArgument, match="LayerNorm cannot"):
        nn.compute_dtype(layer, torch.bfloat16, nn.LayerNorm)
