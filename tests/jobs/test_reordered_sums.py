# SPDX-License-Identifier: MIT
"""Sums in another order: as good as equal, and not equal to the bit."""

import pytest
import torch

from dnnsuite.jobs.trajectories import ReorderedSums

CASES = {
    "mm": lambda: (torch.mm, [(40, 300), (300, 20)]),
    "bmm": lambda: (torch.bmm, [(3, 40, 300), (3, 300, 20)]),
    "addmm": lambda: (lambda c, a, b: torch.addmm(c, a, b, beta=2, alpha=3), [(20,), (40, 300), (300, 20)]),
    "baddbmm": lambda: (torch.baddbmm, [(3, 40, 20), (3, 40, 300), (3, 300, 20)]),
    "linear": lambda: (torch.nn.functional.linear, [(40, 300), (20, 300), (20,)]),
    "conv": lambda: (torch.nn.functional.conv2d, [(9, 32, 9, 9), (16, 32, 3, 3), (16,)]),
    "transposed": lambda: (torch.nn.functional.conv_transpose2d, [(9, 32, 9, 9), (32, 16, 3, 3), (16,)]),
    "grouped": lambda: (
        lambda x, w: torch.nn.functional.conv2d(x, w, groups=32, stride=2, padding=1),
        [(9, 32, 9, 9), (32, 1, 3, 3)],
    ),
    "conv1d": lambda: (torch.nn.functional.conv1d, [(9, 64, 30), (16, 64, 3)]),
}


@pytest.mark.parametrize("name", CASES)
def test_result_and_gradients(name):
    function, shapes = CASES[name]()
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    found = []
    for other in (False, True):
        own = [x.clone().requires_grad_() for x in inputs]
        if other:
            with ReorderedSums():
                output = function(*own)
                output.square().sum().backward()
        else:
            output = function(*own)
            output.square().sum().backward()
        found.append([output.detach(), *(x.grad for x in own)])
    for mine, expected in zip(*found, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))
    assert any(not torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_random_numbers_are_the_same():
    torch.manual_seed(0)
    expected = torch.nn.functional.dropout(torch.ones(100))
    torch.manual_seed(0)
    with ReorderedSums():
        assert torch.equal(torch.nn.functional.dropout(torch.ones(100)), expected)
