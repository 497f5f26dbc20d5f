# SPDX-License-Identifier: MIT
"""A recurrent layer as a GPU has it, step by step, on a CPU that stands in for one."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dnnsuite import ops
from dnnsuite.ops._recurrence import _composed
from dnnsuite.ops.device import cpu_for_gpu
from recurrence_inputs import KINDS, inputs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
def test_the_steps_of_a_gpu_are_the_definition(kind, reverse, given, ragged, device):
    """Results, and gradients where only some results have one, also through the last states."""
    args = [None if a is None else a.detach().to(device).requires_grad_() for a in inputs(kind, given=given)]
    lengths = torch.tensor([[4, 1, 0], [2, 4, 3]], device=device) if ragged else None
    expected = _composed(*args, lengths, kind, reverse)
    with cpu_for_gpu():
        found = ops.recurrence(*args, lengths, kind=kind, reverse=reverse)
        with torch.no_grad():
            plain = ops.recurrence(*args, lengths, kind=kind, reverse=reverse)
    assert (found[2] is None) == (kind != "lstm")
    leaves = [a for a in args if a is not None]
    for places in ((0, 1, 2), (0,), (1,)):
        pairs = [(found[i], expected[i], plain[i]) for i in places if expected[i] is not None]
        weights = [torch.randn_like(b) for _, b, _ in pairs]
        grads = [
            torch.autograd.grad(
                sum((pair[side] * w).sum() for pair, w in zip(pairs, weights, strict=True)), leaves, retain_graph=True
            )
            for side in (0, 1)
        ]
        for a, b in [(p[0], p[1]) for p in pairs] + [(p[2], p[1]) for p in pairs] + [*zip(*grads, strict=True)]:
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def test_the_steps_of_a_gpu_have_gradients_of_gradients():
    args = inputs("lstm", T=3, N=2, H=2)

    def call(*leaves):
        with cpu_for_gpu():
            return ops.recurrence(*leaves[:2], None, *leaves[2:], kind="lstm")[0]

    leaves = [a for a in args if a is not None]
    assert torch.autograd.gradgradcheck(call, leaves, fast_mode=True)


def test_a_step_of_a_gpu_is_two_operators_each_way():
    class Counter(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(func.name())
            return func(*args, **(kwargs or {}))

    gates, weight, *_ = inputs("lstm", T=10)
    with cpu_for_gpu(), Counter() as counter:
        ops.recurrence(gates, weight, kind="lstm")[0].sum().backward()
    kernels = [name for name in counter.seen if name.startswith("dnnsuite::")]
    products = [name for name in counter.seen if "bmm" in name]
    assert (len(kernels), len(products)) == (20, 9 + 9 + 1)


def test_a_step_refuses_what_it_cannot_read():
    gates, h, y = torch.zeros(2, 3, 4, 8), torch.zeros(2, 4, 2), torch.zeros(2, 3, 4, 2)
    step = ops.library.library.recurrence_step_
    with pytest.raises(RuntimeError, match="c goes with kind lstm"):
        step(gates, None, None, None, h, None, y, None, None, 0, "lstm")
    with pytest.raises(RuntimeError, match=r"time must be within \[0, 3\), not 3"):
        step(gates, None, None, None, h, h, y, None, None, 3, "lstm")
    with pytest.raises(RuntimeError, match="y must be contiguous"):
        step(gates, None, None, None, h, h.clone(), y.mT.contiguous().mT, None, None, 0, "lstm")
