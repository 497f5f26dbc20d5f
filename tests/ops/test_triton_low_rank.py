# SPDX-License-Identifier: MIT
"""Low-rank updates by the Triton kernels against float64: in Triton's interpreter on a CPU, compiled on a GPU."""

import pytest
import torch

from dnnsuite import ops
from interpreted import check_interpreted

# Models, rows, inputs, outputs, rank, and the types of the base and of the adapters.
CASES = [
    (3, 5, 7, 9, 2, torch.float32, torch.float32),
    (2, 70, 130, 67, 17, torch.bfloat16, torch.float32),
    (1, 1, 64, 200, 1, torch.float16, torch.float16),
    (4, 33, 16, 16, 40, torch.bfloat16, torch.bfloat16),
    (2, 0, 4, 6, 3, torch.float32, torch.float32),
]
TOKENS = [4, 0, 37, 1]
BOUND = {torch.float32: 2e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def drawn(shape, dtype, device):
    return torch.randn(shape, dtype=torch.float64).to(device, dtype)


def close(found, wanted, bound):
    assert found.shape == wanted.shape
    if wanted.numel():
        assert (found.double() - wanted).abs().max() <= bound * wanted.abs().max().clamp(min=1e-6)


def with_gradients(compute, tensors, seed):
    leaves = [t.detach().requires_grad_() for t in tensors]
    out = compute(*leaves)
    out.backward(seed.to(out.dtype))
    return out.detach(), [leaf.grad for leaf in leaves]


def compare(y, x, down, up, scale, rows):
    """Compare the update and its gradients with float64; `rows` gives the rows of each model of a tensor."""
    seed = drawn(y.shape, y.dtype, y.device)
    ragged = {} if y.dim() == 3 else {"offsets": torch.tensor([0, *TOKENS], device=y.device).cumsum(0), "most": 37}

    def plainly(y, x, down, up):
        parts = zip(rows(y), rows(x), down, up, scale.double(), strict=True)
        found = [base + s * own @ a.T @ b.T for base, own, a, b, s in parts]
        return torch.stack(found) if y.dim() == 3 else torch.cat(found)

    given = (y, x, down, up)
    wanted, gradients = with_gradients(plainly, [t.double() for t in given], seed)
    found, own = with_gradients(lambda *t: ops.low_rank_update(*t, scale, **ragged), given, seed)
    assert found.dtype == y.dtype
    close(found, wanted, BOUND[y.dtype])
    for mine, theirs, leaf in zip(own, gradients, given, strict=True):
        assert mine.dtype == leaf.dtype
        close(mine, theirs, max(BOUND[leaf.dtype], BOUND[y.dtype] / 10))


def penalty(compute, tensors):
    """Gradients of the norm of gradients."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    first = torch.autograd.grad(compute(*leaves).square().sum(), leaves, create_graph=True)
    return torch.autograd.grad(sum(one.square().sum() for one in first), leaves)


def check_twice(device):
    given = [drawn(shape, torch.float32, device) for shape in [(7, 5), (7, 4), (2, 3, 4), (2, 5, 3)]]
    offsets, scale = torch.tensor([0, 3, 7], device=device), torch.tensor([0.5, 2.0], device=device)

    def plainly(y, x, down, up):
        parts = zip(y.split([3, 4]), x.split([3, 4]), down, up, scale.to(y.dtype), strict=True)
        return torch.cat([base + s * own @ a.T @ b.T for base, own, a, b, s in parts])

    wanted = penalty(plainly, [t.double() for t in given])
    found = penalty(lambda *t: ops.low_rank_update(*t, scale, offsets, 4), given)
    for mine, theirs in zip(found, wanted, strict=True):
        close(mine, theirs, 1e-4)


def check(device):
    torch.manual_seed(0)
    check_twice(device)
    for B, N, IN, OUT, R, base, adapter in CASES:
        y, x = drawn((B, N, OUT), base, device), drawn((B, N, IN), base, device)
        down, up = drawn((B, R, IN), adapter, device), drawn((B, OUT, R), adapter, device)
        scale = torch.arange(B, device=device).add(0.5)
        compare(y, x, down, up, scale, lambda t: t.unbind())
        compare(y, x.float(), down, up, scale, lambda t: t.unbind())  # as after dropout
        if N:  # steps in memory of all kinds
            shared = x[:1].expand_as(x)
            apart = drawn((B, OUT, N), base, device).transpose(1, 2)
            compare(apart, shared, down.transpose(1, 2).contiguous().transpose(1, 2), up, scale, lambda t: t.unbind())
    down, up = drawn((4, 5, 12), torch.float32, device), drawn((4, 20, 5), torch.float32, device)
    y, x = (drawn((sum(TOKENS), n), torch.bfloat16, device) for n in (20, 12))
    compare(y, x, down, up, torch.tensor([1.0, 2.0, 0.5, 4.0], device=device), lambda t: t.split(TOKENS))


def test_interpreted_is_the_formula():
    check_interpreted("import test_triton_low_rank as t; t.check('cpu')", __file__)


@pytest.mark.gpu
def test_compiled_is_the_formula():
    check("cuda")
