# SPDX-License-Identifier: MIT
"""Random numbers by the Triton kernel: those of the reference, in Triton's interpreter on a CPU, compiled on a GPU."""

import pytest
import torch

import random_reference as reference
from dnnsuite import ops
from interpreted import check_interpreted

STREAM = torch.tensor([[3, 0], [-4, 2**40 + 7], [2**62 + 5, 1]])
KINDS = [("uniform", -1.0, 3.0), ("normal", 0.5, 2.0), ("bernoulli", 0.3, 0.0), ("exponential", 1.7, 0.0)]
SIZES = (1, 15, 64, 65, 5000)
DTYPES = (torch.float32, torch.float64)
EXACT = {torch.float32: 1e-5, torch.float64: 1e-14}


def check(draw, device):
    """Compare what `draw(like, rng, kind, first, second)` returns with the reference."""
    streams = STREAM.to(device)
    for dtype, size, (kind, first, second) in [(d, n, k) for d in DTYPES for n in SIZES for k in KINDS]:
        like = torch.empty(3, size, dtype=dtype, device=device)
        wanted = reference.random_numbers(STREAM, like.shape, dtype, kind, first, second)
        drawn = draw(like, streams, kind, first, second).cpu()
        torch.testing.assert_close(drawn, wanted, rtol=2e-6, atol=EXACT[dtype])
    apart = torch.stack([STREAM, STREAM + 1], -1)[..., 0].to(device)  # with gaps in memory
    like = torch.empty(3, 5, 41, device=device)
    assert torch.equal(draw(like, apart, "normal", 0.0, 1.0), draw(like, streams, "normal", 0.0, 1.0))
    assert draw(torch.empty(3, 0, device=device), streams, "normal", 0.0, 1.0).shape == (3, 0)
    with pytest.raises(RuntimeError, match="must be uniform, normal, bernoulli or exponential, not cauchy"):
        draw(like, streams, "cauchy", 0.0, 1.0)
    with pytest.raises(RuntimeError, match="rng must have shape"):
        draw(like, streams[:2], "normal", 0.0, 1.0)


def test_interpreted_is_the_reference():
    words = "from dnnsuite.ops._triton_random import random_numbers as draw; t.check(draw, 'cpu')"
    check_interpreted(f"import test_triton_random as t; {words}", __file__)


@pytest.mark.gpu
def test_compiled_is_the_reference():
    check(ops.random_numbers, "cuda")


@pytest.mark.gpu
def test_a_graph_draws_by_the_streams_it_finds():
    """They are read when the graph is launched, not when it was captured."""
    stream, like = STREAM.cuda(), torch.empty(3, 1000, device="cuda")
    assert ops.draws_numbers(like, stream)
    ops.random_numbers(like, stream, "normal", 0.0, 1.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = ops.random_numbers(like, stream, "normal", 0.0, 1.0)
    stream[:, 1] += 5
    graph.replay()
    assert torch.equal(drawn, ops.random_numbers(like, stream, "normal", 0.0, 1.0))
