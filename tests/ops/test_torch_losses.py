# SPDX-License-Identifier: MIT
"""Below an error of torch's about the shape of an array's outputs stands the line to write."""

import sys

import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from dnnsuite.ops import torch_losses


@pytest.mark.parametrize(
    "loss",
    [
        lambda outputs, classes: F.cross_entropy(outputs, dnnsuite.stack(classes, B=4)),
        lambda outputs, classes: torch.nn.CrossEntropyLoss()(outputs, classes),
        lambda outputs, classes: F.nll_loss(outputs.log_softmax(-1), dnnsuite.stack(classes, B=4)),
        lambda outputs, classes: F.binary_cross_entropy_with_logits(outputs, F.one_hot(classes, 3).float()),
    ],
)
def test_an_error_about_an_arrays_outputs_is_followed_by_the_line_to_write(loss, capsys):
    array = dnnsuite.fuse([torch.nn.Linear(5, 3) for _ in range(4)])
    outputs = array(dnnsuite.stack(torch.randn(8, 5), B=4))
    with pytest.raises((RuntimeError, ValueError)) as caught:
        loss(outputs, torch.randint(3, (8,)))
    sys.excepthook(caught.type, caught.value, caught.tb)
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("dnnsuite: these are the outputs of 4 models, [4, 8, 3]: write dnnsuite.nn.functional.")


def test_errors_of_plain_models_and_others_are_left_alone():
    dnnsuite.fuse([torch.nn.Linear(5, 3) for _ in range(4)])
    outputs = torch.nn.Linear(5, 3)(torch.randn(8, 5))
    for wrong in (lambda: F.cross_entropy(outputs, torch.zeros(7, dtype=torch.long)), lambda: outputs.view(7)):
        with pytest.raises((RuntimeError, ValueError)) as caught:
            wrong()
        assert torch_losses.line_to_write(caught.tb) is None
