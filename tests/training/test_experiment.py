# SPDX-License-Identifier: MIT
from dataclasses import fields, replace

import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.training import Data, Experiment, ProfileWindow, Settings, configuration, experiment_of, find_data
from dnnsuite.training.schedules import SteppedWarmup, tbd_tf2
from tiny_training import Points, experiment


@pytest.fixture(scope="module")
def data():
    return find_data(Settings(data="synthetic", max_train_samples=600, max_valid_samples=2))


def test_a_configuration_of_sc20(data):
    made = experiment_of("x", configuration("bs512-opt"), data, "cpu")
    assert (made.batch_size, made.epochs, made.precision) == (512, 120, "bf16")
    assert made.channels_last
    assert made.set_to_none
    assert made.cudnn_benchmark
    with torch.device("meta"):
        model = made.model()
    assert sum(each.numel() for each in model.parameters()) == 23_712_932
    sgd = made.optimizer([torch.nn.Parameter(torch.zeros(1))])
    group = sgd.param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"], group["fused"]) == (0.2, 0.9, 5e-4, True)
    assert experiment_of("x", configuration("bs512-opt"), data, "cuda").precision == "fp16"
    plain = experiment_of("x", configuration("bs128"), data, "cuda")
    assert (plain.precision, plain.channels_last, plain.set_to_none) == ("fp32", False, False)


@pytest.mark.parametrize(("key", "precision"), [("bf16", "bf16"), ("fp16", "fp16"), ("auto", "bf16")])
def test_precisions(data, key, precision):
    settings = Settings(enable_amp=True, amp_dtype=key)
    assert experiment_of("x", settings, data, "cpu").precision == precision


def test_profiling_shortens_every_epoch(data):
    made = experiment_of("x", configuration("bs256-prof").changed({"profiling_iters_per_epoch": 1}), data, "cpu")
    assert made.profile == ProfileWindow(2, 1)
    assert made.order.steps == 1
    assert not made.save_checkpoints


def test_schedules_by_name(data):
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
    constant = experiment_of("x", Settings(schedule="constant", batch_size=8), data, "cpu").schedule(sgd, 5)
    assert isinstance(constant, SteppedWarmup)
    tbd = experiment_of("x", Settings(schedule="tbd-tf2", batch_size=8), data, "cpu").schedule(sgd, 5)
    tbd.begin_step(10)
    assert sgd.param_groups[0]["lr"] == pytest.approx(0.4 * 10 / 25)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_size": 51}, "batch_size is 51, and there are 50 training samples: no batch is full"),
        ({"epochs": 0}, "epochs is 0"),
        ({"precision": "fp8"}, "precision 'fp8'; accepted: fp32, bf16, fp16"),
        ({"data": Data(Points(8), Points(0), 4, "mine", {})}, "mine has no samples in its valid part"),
    ],
)
def test_what_cannot_be_trained(changes, words):
    with pytest.raises(InvalidArgument, match=words):
        experiment(**changes)


def texts(settings, data, **changes):
    return replace(experiment_of("x", settings, data, "cpu"), **changes).whole_identity({}).texts


def test_what_a_resumed_run_must_share(data):
    settings = configuration("bs128")
    first = texts(settings, data)
    free = settings.changed({"max_epochs": 3, "log_freq": 1, "num_data_workers": 0})
    data.train.batch([0, 1], 3)  # what is drawn for an epoch is nothing that data are
    assert texts(free, data) == first

    def odd(settings, data, **changes):
        return {name for name, text in texts(settings, data, **changes).items() if text != first[name]}

    other = find_data(Settings(data="synthetic", seed=3, max_train_samples=600, max_valid_samples=2))
    assert odd(settings.changed({"lr": 0.2}), data) >= {"lr", "optimizer"}
    assert odd(settings, replace(data, train=other.train)) == {"data"}
    assert odd(settings, replace(data, valid=other.valid)) == {"validation data"}
    assert odd(settings, data, schedule=tbd_tf2) == {"schedule"}


FREE = {
    "name", "epochs", "valid_batch_size", "cudnn_benchmark", "workers", "log_every", "checkpoint_every",
    "save_checkpoints", "profile", "lines", "plan", "until", "shard",
}  # fmt: skip
OTHER = {
    "model": torch.nn.Identity, "data": Data(Points(51), Points(11, seed=2), 4, "points", {}),
    "optimizer": torch.optim.Adam, "schedule": tbd_tf2, "loss": torch.nn.functional.mse_loss,
    "metrics": torch.nn.Identity(), "batch_size": 7, "precision": "bf16", "channels_last": True, "compile": True,
    "set_to_none": False, "seed": 1, "drop_last": False, "most_steps": 3, "settings": {"k": 1}, "clip_norm": 0.5,
    "after_step": torch.Tensor.clamp_, "accumulate": 2,
}  # fmt: skip


def test_each_setting_is_one_that_decides_the_numbers_or_that_may_be_another():
    assert FREE | OTHER.keys() == {field.name for field in fields(Experiment)}
    first = experiment()
    for name, value in OTHER.items():
        assert replace(first, **{name: value}).whole_identity({}) != first.whole_identity({}), name
