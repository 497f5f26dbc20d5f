# SPDX-License-Identifier: MIT
"""A batch that all models were to share, passed without `dnnsuite.stack`, just as long as there are models."""

import warnings

import pytest
import torch
from torch import nn

import dnnsuite
from helpers import make_models

B = 3


def step(loss_function, *batch):
    array = dnnsuite.fuse(make_models(lambda: nn.Linear(4, 2), B))
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    with dnnsuite.StepRunner(array, optimizer, loss_function, threads=1, width=B) as runner:
        return runner.step(*batch).losses()


@pytest.mark.parametrize("labels", [torch.zeros(B, dtype=torch.long), torch.zeros(B)])
def test_one_sample_for_each_model_is_warned_of_once(labels):
    x = torch.randn(B, 4)
    with pytest.warns(UserWarning, match=r"\[3, 4\], \[3\].*dnnsuite\.stack\(batch, B=3\)"):
        step(lambda array, x, y: array(x).mean(1) + y, x, labels)


@pytest.mark.parametrize(
    "batch",
    [
        (torch.randn(B, 5, 4), torch.ones(B)),  # a number for each model
        (dnnsuite.stack(torch.randn(5, 4), B=B), torch.ones(B, dtype=torch.long)),
        (torch.randn(B, 4), torch.randn(B, 1)),
    ],
)
def test_other_batches_are_not(batch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(lambda array, x, y: array(x).flatten(1).mean(1) + y.flatten(), *batch)


def test_a_list_of_one_tensor_for_each_model_is_not():
    ragged = [torch.randn(n, 4) for n in (2, 3, 4)]
    step(lambda array, x, y: array(x).flatten(1).mean(1) + y.mean(), ragged, [torch.ones(2)] * B)
