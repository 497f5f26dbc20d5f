# SPDX-License-Identifier: MIT
"""Arguments of a sweep that are refused, and the direction of a metric by its name."""

import pytest
import torch

import dnnsuite
from dnnsuite.errors import Error, InvalidArgument
from dnnsuite.tuning.goal import at_least_1, check_evaluate, check_factory, check_loss, checked_part, sign_of


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
        ("test/accuracy", -1),
        ("accuracy (balanced)", -1),
        ("iou_rate.best", -1),
        ("reconstruction_loss", 1),
        ("loss/val", 1),
        ("word-error-rate", 1),
        (None, 1),
    ],
)
def test_the_direction_of_a_metric(metric, sign):
    assert sign_of(metric, None) == sign
    assert sign_of(metric, "max") == -1


@pytest.mark.parametrize(
    "metric",
    [
        "neg_mean_squared_error", "neg_log_loss", "1-accuracy", "1 - auc", "time_to_accuracy", "score_time", "acc_std",
        "std_of_accuracy", "missed_hits", "error_reduction", "steps_until_success", "recall_gap", "false positives",
        "latency", "val", "",
    ],
)  # fmt: skip
def test_the_direction_of_other_names_is_asked_for(metric):
    with pytest.raises(InvalidArgument, match=r"does not say what is better.*: give goal="):
        sign_of(metric, None)
    assert sign_of(metric, "min") == 1


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
        (lambda: check_loss(torch.nn.CrossEntropyLoss()), r"y: torch.nn.CrossEntropyLoss\(\)\(model\(x\), y\)"),
        (lambda: check_loss(torch.nn.functional.mse_loss), r"y: torch.nn.functional.mse_loss\(model\(x\), y\)"),
        (lambda: check_loss(dnnsuite.nn.functional.cross_entropy), "cross_entropy"),
        (lambda: check_evaluate([torch.zeros(2)]), "evaluate is a list"),
    ],
)
def test_what_is_refused(check, message):
    with pytest.raises(InvalidArgument, match=message):
        check()


def swept(**given):
    data = torch.randn(8, 2), torch.zeros(8, dtype=torch.long)
    values = {"batch_size": 4, "epochs": 1, "out": False, "quiet": True} | given
    return dnnsuite.sweep(lambda config: torch.nn.Linear(2, 2), {"lr": [0.1]}, data, **values)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": torch.nn.CrossEntropyLoss()}, "loss takes the model and its batch"),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)], lr=0.1)}, "a sweep makes one for each model: optimizer='SGD'"),
        ({"algorithm": dnnsuite.tuning.Hyperband}, r"give an instance of a class of dnnsuite.tuning.* Hyperband\(\)"),
        ({"metric": "acc"}, "held-out data as evaluate= give loss and acc"),
    ],
)
def test_what_belongs_to_a_plain_loop_is_refused_with_what_to_write(given, message):
    with pytest.raises(InvalidArgument, match=message):
        swept(**given)


def test_an_argument_that_a_schedule_needs_is_named():
    x = torch.randn(16, 4)
    with pytest.raises(
        Error, match=r"CosineAnnealingLR needs T_max: scheduler=\('CosineAnnealingLR', \{'T_max': \.\.\.\}\)"
    ):
        dnnsuite.sweep(
            lambda config: torch.nn.Linear(4, 2), {"lr": [0.1]}, (x, x[:, :2]), batch_size=8, out=False, quiet=True,
            scheduler="CosineAnnealingLR",
        )  # fmt: skip
