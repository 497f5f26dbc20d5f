# SPDX-License-Identifier: MIT
"""Metrics are found by the name that was asked for, and refused with the names there are."""

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning.goal import metric_in


@pytest.mark.parametrize(
    ("metrics", "asked", "found"),
    [
        ({"train_loss": 1.0, "acc": 0.5, "loss": 2.0}, "", "loss"),
        ({"train_loss": 1.0, "value": 2.0}, "", "value"),
        ({"train_loss": 1.0}, "", "train_loss"),
        ({"train_loss": 1.0, "acc": 0.5}, "acc", "acc"),
        ({"train_loss": 1.0, "acc": 0.5}, "val_acc", "acc"),
        ({"train_loss": 1.0, "acc": 0.5, "val_acc": 0.4}, "val_acc", "val_acc"),
    ],
)
def test_metric_by_name_or_by_default(metrics, asked, found):
    assert metric_in(metrics, asked) == found


def test_a_mistyped_metric_is_refused_with_the_nearest():
    with pytest.raises(InvalidArgument, match=r"'acuracy' \(did you mean 'accuracy'\?\).*accuracy, train_loss"):
        metric_in({"train_loss": 1.0, "accuracy": 0.5}, "acuracy")
