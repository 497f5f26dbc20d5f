# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import nn
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, check_matches_models, make_models

needs_torchs = pytest.mark.skipif(
    not hasattr(torch.nn, "LinearCrossEntropyLoss"), reason="this torch has no LinearCrossEntropyLoss"
)


@needs_torchs
@pytest.mark.parametrize(
    "arguments", [{}, {"bias": True, "label_smoothing": 0.1}, {"weight": torch.rand(7)}, {"reduction": "none"}]
)
def test_matches_models(arguments):
    models = make_models(lambda: torch.nn.LinearCrossEntropyLoss(5, 7, **arguments), 3)
    check_matches_models(models, torch.randn(3, 9, 5), torch.randint(7, (3, 9)))


@needs_torchs
def test_more_dimensions():
    models = make_models(lambda: torch.nn.LinearCrossEntropyLoss(5, 7, out_features=(2, 3), bias=True), 2)
    check_matches_models(models, torch.randn(2, 9, 5), torch.randint(7, (2, 9, 2, 3)))


def test_batches_of_two_sizes():
    loss = nn.LinearCrossEntropyLoss(5, 7, B=2)
    x, target = torch.randn(2, 9, 5), torch.randint(7, (2, 9))
    present = torch.tensor([[True] * 4 + [False] * 5, [True] * 9])
    got = loss(x, target, sample_weight=present)
    assert_near(got[0], nn.functional.cross_entropy(loss.linear(x)[:, :4], target[:, :4])[0])


@pytest.mark.parametrize("arguments", [{"reduction": "max"}, {"label_smoothing": 2.0}])
def test_refuses_bad_arguments(arguments):
    with pytest.raises(InvalidArgument, match=next(iter(arguments))):
        nn.LinearCrossEntropyLoss(5, 7, **arguments, B=2)
