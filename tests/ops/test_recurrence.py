# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import ops
from dnnsuite.errors import InvalidArgument
from dnnsuite.ops._recurrence import _composed
from recurrence_inputs import KINDS, inputs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("N", "H"), [(3, 5), (45, 40)])
def test_is_the_definition(kind, reverse, given, ragged, N, H):
    """Results and gradients; 45 rows are several tasks, 40 columns several panels and an end."""
    args = inputs(kind, N=N, H=H, given=given)
    lengths = torch.arange(2 * N).view(2, N) % 5 if ragged else None
    found = ops.recurrence(*args, lengths, kind=kind, reverse=reverse)
    expected = _composed(*args, lengths, kind, reverse)
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if b is not None]
    weights = [torch.randn_like(b) for _, b in pairs]
    leaves = [a for a in args if a is not None]
    grads = [
        torch.autograd.grad(sum((pair[side] * w).sum() for pair, w in zip(pairs, weights, strict=True)), leaves)
        for side in (0, 1)
    ]
    for a, b in [*pairs, *zip(*grads, strict=True)]:
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("N", "H"), [(1, 5), (3, 16), (9, 37), (2, 64)])
def test_a_single_step_is_the_definition(kind, given, dtype, N, H):
    """As cells take it: without a state no weight is read. 16 and 64 columns are whole blocks, 37 has an end."""
    args = inputs(kind, N=N, H=H, T=1, given=given, dtype=dtype)
    leaves = [t for t in args if t is not None]
    exact = [None if t is None else t.detach().double().requires_grad_() for t in args]
    found, expected = ops.recurrence(*args, kind=kind), _composed(*exact, None, kind, False)
    got = torch.autograd.grad(found[1].cos().sum(), leaves)
    wanted = torch.autograd.grad(expected[1].cos().sum(), [t for t in exact if t is not None])
    for a, b in zip((*found[:2], *got), (*expected[:2], *wanted), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_is_near_and_large_numbers_saturate(kind):
    single = inputs(kind, H=20, dtype=torch.float32)
    double = [None if t is None else t.detach().double() for t in single]
    found, exact = ops.recurrence(*single, kind=kind)[0], ops.recurrence(*double, kind=kind)[0]
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)
    if kind != "rnn_relu":
        huge = ops.recurrence(single[0] * 1e4, *single[1:], kind=kind)[0]
        assert torch.isfinite(huge).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_gradients(kind):
    args = list(inputs(kind, T=2, N=2, H=2))
    leaves = [t for t in args if t is not None]

    def call(*given):
        rest = iter(given)
        return ops.recurrence(*(None if t is None else next(rest) for t in args), kind=kind)[0]

    assert torch.autograd.gradcheck(call, leaves)
    assert torch.autograd.gradgradcheck(call, leaves)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [False, True])
def test_is_a_proper_operator(kind, keep):
    args = (*inputs(kind), None, kind, True, keep)
    plain = tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in args)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.dnnsuite.recurrence.default, plain, test_utils=checks)


@pytest.mark.parametrize("N", [1, 7, 45])
def test_bits_depend_on_neither_width_slot_nor_threads(N):
    args = inputs("lstm", N=N, H=40, B=5, dtype=torch.float32)
    wide = ops.recurrence(*args, kind="lstm")[0]
    for order in ([3], [4, 0, 2]):
        taken = [None if t is None else t[order] for t in args]
        assert torch.equal(ops.recurrence(*taken, kind="lstm")[0], wide[order])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(ops.recurrence(*args, kind="lstm")[0], wide)
    finally:
        torch.set_num_threads(before)


def test_a_frozen_array_keeps_nothing():
    args = [None if t is None else t.detach() for t in inputs("lstm")]
    assert not ops.recurrence(*args, kind="lstm")[0].requires_grad


def test_refuses():
    gates, weight = torch.randn(2, 5, 3, 16), torch.randn(2, 16, 4)
    with pytest.raises(InvalidArgument, match="kind must be one of lstm, gru"):
        ops.recurrence(gates, weight, kind="rnn")
    with pytest.raises(InvalidArgument, match=r"gates must be \[B, T, N, 16\]"):
        ops.recurrence(gates[..., :4], weight, kind="lstm")
    with pytest.raises(InvalidArgument, match="one or more steps"):
        ops.recurrence(gates[:, :0], weight, kind="lstm")
    with pytest.raises(RuntimeError, match=r"recurrence: h must have shape \[2, 3, 4\], not \[2, 3, 5\]"):
        ops.recurrence(gates, weight, None, torch.randn(2, 3, 5), kind="lstm")
    with pytest.raises(RuntimeError, match="recurrence: lengths must be Long"):
        ops.recurrence(gates, weight, None, None, None, torch.ones(2, 3), kind="lstm")
