# SPDX-License-Identifier: MIT
"""Arguments of a sweep that are refused, and the direction of a metric by its name."""

import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning.checks import at_least_1, check_evaluate, check_factory, checked_part, sign_of


@pytest.mark.parametrize(
    ("metric", "sign"),
    [
        ("acc", -1),
        ("val_F1", -1),
        ("mean_iou", -1),
        ("loss", 1),
        ("psnr", -1),
        ("reward", -1),
        ("top5_error", 1),
        ("map50", -1),
        ("accumulated_loss", 1),
        ("error_score", 1),
        (None, 1),
    ],
)
def test_the_direction_of_a_metric(metric, sign):
    assert sign_of(metric, None) == sign
    assert sign_of(metric, "max") == -1


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: sign_of("loss", "least"), "give min or max"),
        (lambda: sign_of("previous", None), "does not say what is better: give goal="),
        (lambda: sign_of("negative_log_likelihood", None), "does not say what is better"),
        (lambda: sign_of("accc", None), "did you mean 'acc'"),
        (lambda: at_least_1("width", True), "width is a whole number, 1 or more; got True"),
        (lambda: checked_part(-0.1), "min_delta"),
        (lambda: checked_part(float("nan")), "min_delta"),
        (lambda: check_factory(torch.nn.Linear(2, 1)), "make_model is a Linear: give a function"),
        (lambda: check_evaluate([torch.zeros(2)]), "evaluate is a list"),
    ],
)
def test_what_is_refused(check, message):
    with pytest.raises(InvalidArgument, match=message):
        check()
