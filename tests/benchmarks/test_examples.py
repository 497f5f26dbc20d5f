# SPDX-License-Identifier: MIT
"""The loop that examples are compared with trains as their arrays do; the least of the rounds counts."""

import torch
from examples import Loop, measure

import dnnsuite
from dnnsuite import nn, optim


def test_the_loop_trains_as_the_array_does():
    def made():
        torch.manual_seed(0)
        array = dnnsuite.fuse([torch.nn.Linear(4, 3) for _ in range(2)])
        return array, optim.SGD(array.parameters(), lr=[0.1, 0.5], momentum=0.9)

    def loss(array, x, y):
        return nn.functional.cross_entropy(array(x), y)

    x, y = torch.randn(2, 8, 4), torch.randint(3, (2, 8))
    with dnnsuite.StepRunner(*made(), loss, threads=1) as runner, Loop(*made(), loss, threads=1) as loop:
        for batch in ((x, y), (2 * x, y)):
            torch.testing.assert_close(loop.step(*batch).losses(), runner.step(*batch).losses())
        together = Loop(*made(), loss)  # of a batch that is one tuple
        torch.testing.assert_close(together.step((x, y)).losses(), Loop(*made(), loss).step(x, y).losses())


def test_the_least_of_the_rounds_counts():
    times = iter([2.0, 9.0, 3.0, 8.0, 1.0, 10.0])
    asked = []
    assert measure("x", 3, lambda name, in_array: asked.append(in_array) or next(times)) == (1.0, 8.0)
    assert asked == [True, False] * 3
