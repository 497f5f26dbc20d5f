# SPDX-License-Identifier: MIT
"""Low-rank updates of B models on a CPU against float64; those of a GPU are in test_triton_low_rank.py."""

import pytest
import torch

from dnnsuite import ops

# Ranks of the models, rows, inputs, outputs.
CASES = [
    ([4, 0, 3], 5, 7, 9),
    ([1], 1, 1, 1),
    ([2, 1, 0, 2], 0, 8, 8),
    ([17, 1], 200, 300, 70),  # several blocks of rows
    ([48, 16], 101, 40, 2100),  # wide rows and ranks that fill vectors
    ([12, 8], 13, 2050, 33),
]
KINDS = [
    (torch.float64, torch.float64, 1e-12),
    (torch.float32, torch.float32, 1e-5),
    (torch.bfloat16, torch.float32, 1e-2),
]
every = pytest.mark.parametrize(("ranks", "rows", "inputs", "outputs"), CASES)
kinds = pytest.mark.parametrize(("base", "factors", "bound"), KINDS)
dropping = pytest.mark.parametrize("drops", [False, True])


def tensors(ranks, rows, inputs, outputs, base, factors, drops=False):
    gen = torch.Generator().manual_seed(rows + inputs)

    def r(*shape, dtype):
        return torch.randn(*shape, generator=gen, dtype=torch.float64).to(dtype)

    B, most = len(ranks), max(ranks)
    down, up = r(B, most, inputs, dtype=factors), r(B, outputs, most, dtype=factors)
    for i, rank in enumerate(ranks):
        down[i, rank:], up[i, :, rank:] = 0, 0
    leaves = [r(B, rows, outputs, dtype=base), r(B, rows, inputs, dtype=base), down, up]
    scale = torch.linspace(0.5, 2.0, B, dtype=factors)
    if not drops:
        return [t.requires_grad_() for t in leaves], scale, {}
    rng = torch.randint(-(2**60), 2**60, (B, 2), generator=gen)
    return [t.requires_grad_() for t in leaves], scale, {"p": torch.linspace(0.0, 0.6, B), "rng": rng}


def plainly(y, x, down, up, scale, p=None, rng=None):
    if p is not None:
        x = ops.dropout(x, p, rng)
    return y + scale.view(-1, 1, 1) * (x @ down.transpose(1, 2) @ up.transpose(1, 2))


def near(found, wanted, bound):
    assert found.shape == wanted.shape
    if wanted.numel():
        assert (found.double() - wanted).abs().max() <= bound * wanted.abs().max().clamp(min=1e-6)


@every
@kinds
@dropping
def test_is_the_composition_in_float64(ranks, rows, inputs, outputs, base, factors, bound, drops):
    leaves, scale, draw = tensors(ranks, rows, inputs, outputs, base, factors, drops)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    wanted = plainly(*exact, scale.double(), **draw)
    found = ops.low_rank(*leaves, scale, ranks, **draw)
    assert found.dtype == base
    near(found, wanted, bound)
    seed = torch.randn_like(found)
    theirs = torch.autograd.grad(wanted, exact, seed.double())
    for mine, other, leaf in zip(torch.autograd.grad(found, leaves, seed), theirs, leaves, strict=True):
        assert mine.dtype == leaf.dtype
        near(mine, other, bound)
    for of_down, of_up, rank in zip(
        *torch.autograd.grad(ops.low_rank(*leaves, scale, ranks), leaves[2:], seed), ranks, strict=True
    ):
        assert not of_down[rank:].any()
        assert not of_up[:, rank:].any()


@every
@dropping
def test_a_model_alone_has_the_same_bits(ranks, rows, inputs, outputs, drops):
    leaves, scale, draw = tensors(ranks, rows, inputs, outputs, torch.float32, torch.float32, drops)
    together = ops.low_rank(*leaves, scale, ranks, **draw)
    seed = torch.randn_like(together)
    gradients = torch.autograd.grad(together, leaves, seed)
    for i, rank in enumerate(ranks):
        own = [leaf.detach()[i : i + 1] for leaf in leaves]
        own[2], own[3] = own[2][:, :rank], own[3][..., :rank]
        own = [leaf.contiguous().requires_grad_() for leaf in own]
        alone = ops.low_rank(*own, scale[i : i + 1], [rank], **{k: t[i : i + 1] for k, t in draw.items()})
        assert torch.equal(alone[0], together[i])
        mine = torch.autograd.grad(alone, own, seed[i : i + 1])
        assert all(torch.equal(a[0], b[i]) for a, b in zip(mine[:2], gradients[:2], strict=True))
        assert torch.equal(mine[2][0], gradients[2][i, :rank])
        assert torch.equal(mine[3][0], gradients[3][i, :, :rank])


@kinds
@dropping
def test_rows_of_different_numbers(base, factors, bound, drops):
    ranks, counts = [3, 8, 1, 2], [4, 0, 150, 1]
    leaves, scale, draw = tensors(ranks, 150, 20, 30, base, factors, drops)
    cut = [[t[i, :n] for i, n in enumerate(counts)] for t in leaves[:2]]
    rows = [torch.cat(parts).detach().requires_grad_() for parts in cut]
    found = ops.low_rank(*rows, *leaves[2:], scale, ranks, counts=counts, **draw)
    whole = ops.low_rank(*leaves, scale, ranks, **draw)
    assert torch.equal(found, torch.cat([whole[i, :n] for i, n in enumerate(counts)]))
    seed = torch.randn_like(found)
    mine = torch.autograd.grad(found, [*rows, *leaves[2:]], seed)
    padded = torch.zeros_like(whole)
    for own, part in zip(padded, seed.split(counts), strict=True):
        own[: len(part)] = part
    theirs = torch.autograd.grad(whole, leaves, padded)
    for i, n in enumerate(counts):
        assert torch.equal(mine[1].split(counts)[i], theirs[1][i, :n])
    for a, b in zip(mine[2:], theirs[2:], strict=True):
        near(a, b.double(), bound)


@dropping
def test_twice(drops):
    leaves, scale, draw = tensors([3, 2], 4, 5, 6, torch.float64, torch.float64, drops)
    seen = []
    for way in (lambda *t: ops.low_rank(*t, scale, [3, 2], **draw), lambda *t: plainly(*t, scale, **draw)):
        first = torch.autograd.grad(way(*leaves).square().sum(), leaves, create_graph=True)
        seen.append(torch.autograd.grad(sum(one.square().sum() for one in first), leaves))
    for i, rank in enumerate([3, 2]):
        for mine, theirs in zip(*seen, strict=True):
            cut = (
                (slice(rank), slice(None))
                if mine.shape[1:] == (3, 5)
                else (slice(None), slice(rank) if mine.shape[2] == 3 else slice(None))
            )
            torch.testing.assert_close(mine[i][cut], theirs[i][cut], rtol=1e-10, atol=1e-10)


def test_shared_rows_and_two_threads_have_the_same_bits():
    leaves, scale, draw = tensors([4, 2, 1], 400, 30, 40, torch.float32, torch.float32, True)
    shared = [leaves[0][:1].expand(3, -1, -1), leaves[1][:1].expand(3, -1, -1), *leaves[2:]]
    copied = [t.detach().clone().requires_grad_() for t in shared]
    found, wanted = (ops.low_rank(*given, scale, [4, 2, 1], **draw) for given in (shared, copied))
    assert torch.equal(found, wanted)
    seed = torch.randn_like(found)
    gradients = torch.autograd.grad(wanted, copied, seed)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        again = ops.low_rank(*copied, scale, [4, 2, 1], **draw)
        assert torch.equal(again, wanted)
        for a, b in zip(torch.autograd.grad(again, copied, seed), gradients, strict=True):
            assert torch.equal(a, b)
    finally:
        torch.set_num_threads(threads)
    of_x = torch.autograd.grad(found, leaves[1], seed)[0]
    torch.testing.assert_close(of_x[0], gradients[1].sum(0))
    assert not of_x[1:].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_factors_of_sixteen_bits_are_composed(dtype):
    leaves, scale, _ = tensors([2, 3], 6, 8, 10, dtype, dtype)
    found = ops.low_rank(*leaves, scale, [2, 3])
    assert found.dtype == dtype
    near(found, plainly(*(t.double() for t in leaves), scale.double()), 3e-2)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ranks": [5, 1]}, "ranks are 0 to 3, not 5"),
        ({"ranks": [1]}, "a rank for each of 2 models"),
        ({"counts": [3, 2]}, r"x must have shape \[5, 5\]"),
        ({"p": torch.tensor([0.5, 2.0]), "rng": torch.zeros(2, 2, dtype=torch.int64)}, "p must be within"),
    ],
)
def test_wrong_arguments_are_named(changed, message):
    leaves, scale, _ = tensors([3, 2], 4, 5, 6, torch.float32, torch.float32)
    if "counts" in changed:
        leaves = [t.detach().flatten(0, 1) for t in leaves[:2]] + leaves[2:]
    with pytest.raises(RuntimeError, match=message):
        ops.low_rank(*leaves, scale, **{"ranks": [3, 2], **changed})


def test_shapes_are_known_without_numbers():
    shapes = [(2, 3, 4), (2, 3, 5), (2, 1, 5), (2, 4, 1)]
    dtypes = [torch.bfloat16, torch.bfloat16, torch.float32, torch.float32]
    given = [torch.ones(s, dtype=d, device="meta").requires_grad_() for s, d in zip(shapes, dtypes, strict=True)]
    out = ops.low_rank_update(*given, torch.ones(2, device="meta"))
    assert (out.shape, out.dtype) == (given[0].shape, torch.bfloat16)
    out.sum().backward()
    assert [(one.grad.shape, one.grad.dtype) for one in given] == [(one.shape, one.dtype) for one in given]
    found = torch.ops.dnnsuite.low_rank(*given, torch.ones(2, device="meta"), [1, 1], [], None, None)
    assert [tuple(one.shape) for one in found] == [(2, 3, 4), (6, 1)]
