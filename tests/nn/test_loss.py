# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import nn
from dnnsuite.errors import InvalidArgument
from helpers import assert_near


def separate(logits, target, **arguments):
    logits = logits.detach().clone().requires_grad_()
    losses = [torch.nn.CrossEntropyLoss(**arguments)(x, y) for x, y in zip(logits, target, strict=True)]
    torch.stack([loss.sum() for loss in losses]).nansum().backward()
    return torch.stack(losses), logits.grad


ARGUMENTS = [
    {},
    {"label_smoothing": 0.1},
    {"ignore_index": 2},
    {"weight": torch.tensor([0.5, 1.0, 2.0, 0.1, 3.0])},
    {"weight": torch.tensor([0.5, 1.0, 2.0, 0.1, 3.0]), "ignore_index": 2, "label_smoothing": 0.2},
]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_matches_models(arguments, reduction, device):
    logits = torch.randn(3, 8, 5, device=device, requires_grad=True)
    target = torch.randint(5, (3, 8), device=device)
    target[:, 0] = 2
    arguments = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    loss = nn.CrossEntropyLoss(**arguments, reduction=reduction, B=3).to(device)(logits, target)
    loss.sum().backward()
    expected, gradient = separate(logits, target, **arguments, reduction=reduction)
    assert_near(loss, expected, "loss")
    assert_near(logits.grad, gradient, "gradient")


def test_models_may_count_different_numbers_of_samples():
    """HFTA's B · mean(all) is wrong here."""
    logits = torch.randn(2, 4, 5)
    target = torch.randint(5, (2, 4))
    target[0, 1:] = -100
    expected, _ = separate(logits, target)
    assert_near(nn.CrossEntropyLoss(B=2)(logits, target), expected)


def test_a_model_with_nothing_to_count_is_nan_and_stays_alone():
    logits = torch.randn(2, 4, 5, requires_grad=True)
    target = torch.randint(5, (2, 4))
    target[0] = -100
    loss = nn.CrossEntropyLoss(B=2)(logits, target)
    assert loss[0].isnan()
    assert loss[1].isfinite()
    loss[1].backward()
    assert logits.grad[1].any()


def test_more_dimensions_follow_the_class():
    logits, target = torch.randn(2, 3, 5, 4, 6), torch.randint(5, (2, 3, 4, 6))
    for reduction in ("mean", "none"):
        expected, _ = separate(logits, target, reduction=reduction)
        assert_near(nn.functional.cross_entropy(logits, target, reduction=reduction), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reduction": "max"}, "reduction"),
        ({"label_smoothing": 2.0}, "label_smoothing"),
        ({"reduce": True}, "reduce"),
    ],
)
def test_refuses_bad_arguments(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        nn.CrossEntropyLoss(**arguments, B=2)


def test_refuses_targets_of_another_shape():
    with pytest.raises(InvalidArgument, match=r"\[2, 4\].*\[2, 5\]"):
        nn.CrossEntropyLoss(B=2)(torch.randn(2, 4, 5), torch.zeros(2, 5, dtype=torch.long))
