# SPDX-License-Identifier: MIT
import dataclasses

import pytest

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs import FusedWorkload, Made, Preset

BERT = jobs.get("bert").workload


def test_arguments_are_hyperparameters_and_constants():
    made = Made("Adam", {"lr": "lr", "betas": ("beta1", 0.999), "eps": 1e-6})
    assert made.hyperparameters() == {"lr", "beta1"}
    assert made.filled({"lr": [1, 2], "beta1": [3, 4]}) == {
        "lr": [1, 2],
        "betas": ([3, 4], 0.999),
        "eps": 1e-6,
    }


def test_a_preset_is_another_on_a_gpu():
    preset = Preset(3, 4, max_B=4, cuda={"max_B": None, "iters_per_epoch": 50})
    assert (preset.on("cpu")["max_B"], preset.on("cpu")["iters_per_epoch"]) == (4, 4)
    assert (preset.on("cuda:1")["max_B"], preset.on("cuda:1")["iters_per_epoch"]) == (None, 50)
    assert "cuda" not in preset.on("cpu")


def test_a_preset_that_is_not_declared_is_the_default():
    workload = dataclasses.replace(BERT, presets={"default": Preset(7, 8)})
    assert workload.preset("quick", "cpu") == workload.preset("default", "cpu")
    assert workload.preset("paper", "cpu")["epochs"] == 7


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"optimizer": Made("SGD", {"lr": "rate"})},
            "SGD takes the hyperparameter 'rate', which `hyper` has not",
        ),
        ({"schedule": Made("StepLR", {"gamma": "decay"})}, "StepLR takes the hyperparameter 'decay'"),
        ({"accuracy": lambda model, x: x}, "`accuracy` without `held_out`"),
        ({"held_out": lambda config, options: None}, "`held_out` without `accuracy`"),
        ({"presets": {"quick": Preset(1, 1)}}, "no preset 'default'; it has quick"),
        ({"presets": {"default": Preset(1, 1), "fast": Preset(1, 1)}}, "preset 'fast' is none of quick"),
    ],
)
def test_refuses_a_declaration_that_contradicts_itself(changes, words):
    with pytest.raises(InvalidArgument, match=words):
        dataclasses.replace(BERT, **changes)


def test_losses_of_parts_keep_their_order():
    one, two = (lambda model, x: x), (lambda model, x: -x)
    assert FusedWorkload.parts(dataclasses.replace(BERT, loss=one)) == {"": one}
    assert list(dataclasses.replace(BERT, loss={"b": one, "a": two}).parts()) == ["b", "a"]
