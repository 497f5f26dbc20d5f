# SPDX-License-Identifier: MIT
"""Convolutions in Triton: in its interpreter on a CPU, compiled on a GPU."""

import pytest
import torch
from torch import nn

import dnnsuite
import forked_program
import triton_cases
from dnnsuite.nn import _triton_convolution as in_triton
from interpreted import check_interpreted

ON_GPU = (
    *("stem", "3x3", "strides", "even groups", "small groups", "1x1", "1x1 strided", "one model"),
    *("transposed", "transposed, few", "line"),
)


def test_interpreted_is_torch():
    check_interpreted("import triton_cases; triton_cases.main()", __file__)


def test_triton_is_imported_when_it_is_used():
    done = forked_program.run("import sys, dnnsuite.nn._convolution_ways; assert 'triton' not in sys.modules")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def tf32():
    before = torch.backends.cudnn.allow_tf32
    yield lambda allowed: setattr(torch.backends.cudnn, "allow_tf32", allowed)
    torch.backends.cudnn.allow_tf32 = before


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["float32", "tf32", "bfloat16", "float16"])
@pytest.mark.parametrize("case", ON_GPU)
def test_on_a_gpu(case, kind, tf32):
    tf32(kind == "tf32")
    dtype = torch.float32 if kind == "tf32" else getattr(torch, kind)
    triton_cases.check(case, dtype, "cuda", {"float32": 5e-6, "tf32": 5e-3}.get(kind))


@pytest.mark.gpu
def test_layouts_and_gradients_of_gradients_on_a_gpu(tf32):
    tf32(False)
    triton_cases.check_layouts("cuda", 5e-6)
    triton_cases.check_gradients_of_gradients("cuda", 5e-6)


@pytest.mark.gpu
def test_tiles_on_a_gpu(tf32):
    tf32(False)
    triton_cases.check_tiles("cuda", 5e-6)


@pytest.mark.gpu
def test_in_a_captured_step(tf32):
    """A replayed step trains as the step as written does."""
    tf32(False)

    def make(seed):
        torch.manual_seed(seed)
        layers = nn.Conv2d(3, 20, 3, padding=1), nn.Conv2d(20, 8, 3, 2), nn.Linear(72, 5)
        return nn.Sequential(*layers).cuda()

    def losses(array, x, y):
        first, second, last = array.children()
        for layer, stride, padding in ((first, 1, 1), (second, 2, 0)):
            steps = (stride, stride), (padding, padding), (1, 1)
            x = in_triton.convolve(x, layer.weight, layer.bias, steps).relu()
        return dnnsuite.nn.functional.cross_entropy(last(x.flatten(2)), y)

    torch.manual_seed(0)
    batches = [(torch.randn(2, 4, 3, 7, 7).cuda(), torch.randint(5, (2, 4)).cuda()) for _ in range(12)]
    found = []
    for captured in (True, False):
        array = dnnsuite.fuse([make(seed) for seed in range(2)])
        optimizer = dnnsuite.optim.SGD(array.parameters(), lr=[0.1, 0.05])
        with dnnsuite.StepRunner(array, optimizer, losses) as runner:
            if captured:
                for x, y in batches:
                    runner.step(x, y)
                assert runner.mode == "captured"
            else:
                for x, y in batches:
                    optimizer.zero_grad()
                    losses(array, x, y).sum().backward()
                    optimizer.step()
        found.append([p.detach().clone() for p in array.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
