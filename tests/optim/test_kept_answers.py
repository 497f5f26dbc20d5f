# SPDX-License-Identifier: MIT
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dnnsuite.optim._state import MOST, KeptAnswers


class Waits(TorchDispatchMode):
    """Counts how often a value goes to Python."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_groups_in_turn_wait_once_each():
    answers, momenta = KeptAnswers(), [torch.zeros(3), torch.tensor([0.0, 0.9, 0.0])]
    with Waits() as waits:
        for _ in range(5):
            assert [answers.any(momentum) for momentum in momenta] == [False, True]
    assert waits.count == 2


def test_a_value_written_later_is_seen():
    answers, momentum = KeptAnswers(), torch.zeros(3)
    assert not answers.any(momentum)
    momentum[1] = 0.9
    assert answers.any(momentum)


def test_few_are_kept():
    answers = KeptAnswers()
    tensors = [torch.full((1,), float(i % 2)) for i in range(3 * MOST)]
    assert [answers.any(t) for t in tensors] == [bool(i % 2) for i in range(3 * MOST)]
