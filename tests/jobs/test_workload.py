# SPDX-License-Identifier: MIT
import dataclasses
import types

import pytest
import torch

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs import JobConfig, Made, Metric, Preset, Rate, Workload
from dnnsuite.jobs.workload import valued

BERT = jobs.get("bert").workload


def test_arguments_are_hyperparameters_and_constants():
    made = Made("Adam", {"lr": "lr", "betas": ("beta1", 0.999), "eps": 1e-6})
    assert made.hyperparameters() == {"lr", "beta1"}
    assert made.filled({"lr": [1, 2], "beta1": [3, 4]}) == {"lr": [1, 2], "betas": ([3, 4], 0.999), "eps": 1e-6}


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
            "SGD takes the hyperparameter 'rate', which is missing in `hyper`",
        ),
        ({"schedule": Made("StepLR", {"gamma": "decay"})}, "StepLR takes the hyperparameter 'decay'"),
        ({"metric": Metric("share", lambda model, x: x)}, "`metric` without `held_out`"),
        ({"held_out": lambda config, options: None}, "`held_out` without `metric`"),
        ({"accumulate": 0}, "accumulate is 0, must be 1 or more"),
        ({"presets": {"quick": Preset(1, 1)}}, "no preset 'default'; it has quick"),
        ({"presets": {"default": Preset(1, 1), "fast": Preset(1, 1)}}, "preset 'fast' is none of quick"),
    ],
)
def test_refuses_a_declaration_that_contradicts_itself(changes, words):
    with pytest.raises(InvalidArgument, match=words):
        dataclasses.replace(BERT, **changes)


def test_losses_of_parts_keep_their_order():
    one, two = (lambda model, x: x), (lambda model, x: -x)
    assert Workload.parts(dataclasses.replace(BERT, loss=one)) == {"": one}
    assert list(dataclasses.replace(BERT, loss={"b": one, "a": two}).parts()) == ["b", "a"]


def test_a_metric_is_reached_in_its_direction_and_never_by_nan():
    more, less = Metric("AUC", lambda model: model), Metric("bits", lambda model: model, "less")
    assert [more.reached(value, 0.75) for value in (0.8, 0.7, float("nan"))] == [True, False, False]
    assert [less.reached(value, 3.6) for value in (3.5, 3.7, float("nan"))] == [True, False, False]


def test_what_functions_of_a_workload_return_is_looked_at():
    lacking = types.SimpleNamespace(batch=lambda i: (), record={})
    job = dataclasses.replace(BERT, data=lambda config, options: lacking)
    with pytest.raises(InvalidArgument, match=r"its data, of SimpleNamespace, have no `sizes`"):
        job.batches(JobConfig(), {})
    with pytest.raises(InvalidArgument, match=r"float must return a tensor of one number, and returned a float"):
        valued(float, 0.5)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (lambda w: w.detach().numpy(), r"returned a ndarray"),
        (lambda w: w, r"returned one of shape \[3\]: take its mean\(\)"),
        (lambda w: w.mean() + 0j, r"returned one of torch.complex64"),
        (lambda w: w.mean().detach(), r"returned one without a gradient"),
        (lambda w: w.mean().to("meta"), r"returned one on the device meta, where the batch is on cpu"),
    ],
)
def test_a_loss_that_cannot_be_trained_is_refused_with_its_name(found, words):
    def price(model, batch):
        return found(batch)

    batch = (torch.ones(3, requires_grad=True),)
    with pytest.raises(InvalidArgument, match=rf"^price must return a tensor of one number, and {words}"):
        valued(price, price(None, *batch), batch)


def test_numbers_of_a_metric_need_no_gradient():
    with torch.no_grad():
        assert valued(None, torch.tensor(True)) == 1


@pytest.mark.parametrize("found", [float("nan"), float("inf"), -0.1, "high", None, [1.0]])
def test_a_rate_that_is_no_factor_is_refused(found):
    job = dataclasses.replace(BERT, rate=lambda step, steps: found)
    with pytest.raises(InvalidArgument, match=r"its rate in step 7 is .*, and must be a number >= 0"):
        job.factor(7, 10)
    assert dataclasses.replace(job, rate=lambda step, steps: torch.tensor(0.5)).factor(7, 10) == 0.5


def test_what_torch_does_not_take_is_refused_by_name():
    with pytest.raises(InvalidArgument, match=r"torch.optim has no Adamm \(did you mean 'Adam'\?\)"):
        Made("Adamm", {}).kind(torch.optim)
    with pytest.raises(InvalidArgument, match=r"^Adam: .*'lrr'"):
        Made("Adam", {"lrr": 0.1}).make(torch.optim.Adam, [torch.ones(1)], {})


def test_a_rate_falls_as_soon_as_it_has_risen():
    assert [Rate(warmup=0.5)(step, 4) for step in range(4)] == [Rate(0.5, 0.5)(step, 4) for step in range(4)]


@pytest.mark.parametrize("shape", ["linear", "cosine"])
@pytest.mark.parametrize("steps", [1, 7, 120])
def test_a_rate_rises_stays_and_falls_to_its_end(shape, steps):
    rate = Rate(warmup=0.1, constant=0.3, shape=shape, end=0.1)
    factors = [rate(step, steps) for step in range(steps)]
    top = factors.index(max(factors))
    assert factors[: top + 1] == sorted(factors[: top + 1])
    assert factors[top:] == sorted(factors[top:], reverse=True)
    assert min(factors) > 0
    assert max(factors) <= 1
    assert rate(steps, steps) == rate(10 * steps, steps) <= factors[-1]
    with pytest.raises(InvalidArgument, match="0 <= warmup <= constant <= 1"):
        Rate(0.5, 0.2)


def test_steps_of_a_preset_are_observed_in_about_thirty_parts():
    assert Preset(3, 40).observations == (30, 4)
    assert Preset(1, 5).observations == (5, 1)
    assert Preset(1, 5, observed=(7, 2)).observations == (7, 2)
