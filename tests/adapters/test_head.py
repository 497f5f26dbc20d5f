# SPDX-License-Identifier: MIT
"""Log-probabilities of a frozen head in pieces, against torch's log_softmax."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dnnsuite.adapters.head import log_probs_of


class Largest(TorchDispatchMode):
    """The most rows of logits in a tensor that an operator makes."""

    def __init__(self, words):
        super().__init__()
        self.words, self.rows = words, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.shape[-1:] == (self.words,):
            self.rows = max(self.rows, made.numel() // self.words)
        return made


@pytest.mark.parametrize("biased", [False, True])
def test_it_is_log_softmax_and_its_gradient(biased):
    generator = torch.Generator().manual_seed(0)
    words, rows = 70_000, 150
    draw = {"generator": generator, "dtype": torch.float64}
    hidden = torch.randn(rows, 4, **draw).requires_grad_()
    weight, bias = torch.randn(words, 4, **draw), torch.randn(words, **draw) if biased else None
    wanted, scale = torch.randint(words, (rows,), generator=generator), torch.randn(rows, **draw)
    logits = torch.nn.functional.linear(hidden, weight, bias)
    plain = logits.log_softmax(1).gather(1, wanted[:, None]).squeeze(1)
    (slope,) = torch.autograd.grad((scale * plain).sum(), hidden)
    with Largest(words) as seen:
        found = log_probs_of(hidden, weight, bias, wanted)
        (mine,) = torch.autograd.grad((scale * found).sum(), hidden)
    torch.testing.assert_close(found, plain)
    torch.testing.assert_close(mine, slope)
    assert 0 < seen.rows <= 64  # of 150: no tensor has the logits of all


def test_of_bfloat16_it_is_float32():
    hidden, weight = torch.randn(3, 8).bfloat16(), torch.randn(20, 8).bfloat16()
    found = log_probs_of(hidden, weight, None, torch.tensor([1, 2, 19]))
    assert found.dtype == torch.float32
    plain = (hidden @ weight.T).float().log_softmax(1)[range(3), [1, 2, 19]]
    torch.testing.assert_close(found, plain)
