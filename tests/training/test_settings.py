# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.training import Settings, configuration
from dnnsuite.training.settings import describe


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("lr", "5e-2", 0.05),
        ("batch_size", "64", 64),
        ("batch_size", 64.0, 64),
        ("enable_amp", "yes", True),
        ("enable_amp", False, False),
        ("cifar100_mean", "0.1,0.2,0.3", (0.1, 0.2, 0.3)),
        ("cifar100_mean", [0, 0, 1], (0.0, 0.0, 1.0)),
        ("data_path", "None", None),
        ("data_path", "/x", "/x"),
    ],
)
def test_values_are_converted(key, value, found):
    assert getattr(Settings.from_mapping({key: value}), key) == found


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("lerning_rate", 1, "unknown key 'lerning_rate'"),
        ("enable_ampp", 1, "did you mean 'enable_amp'?"),
        ("batch_size", 0, "batch_size is 0: must be at least 1"),
        ("batch_size", 2.5, "not a whole number"),
        ("batch_size", True, "not a whole number"),
        ("lr", "fast", "lr is 'fast': not a number"),
        ("lr", "nan", "not a number"),
        ("lr", None, "not a number"),
        ("enable_nhwc", "maybe", "neither true nor false"),
        ("amp_dtype", "bf61", "did you mean 'bf16'?"),
        ("cifar100_std", [1, 2], "has 2 numbers; it takes 3"),
        ("cifar100_std", 5, "not a list"),
        ("data", 7, "not a text"),
    ],
)
def test_a_value_that_cannot_be_is_refused(key, value, words):
    with pytest.raises(InvalidArgument, match=f"here: .*{words.replace('?', '[?]')}"):
        Settings.from_mapping({key: value}, "here")


def test_learning_rate_follows_the_batch():
    found = [round(Settings(batch_size=b, lr_scaling="sqrt").peak_lr, 4) for b in (128, 256, 512, 1024, 2048)]
    assert found == [0.1, 0.1414, 0.2, 0.2828, 0.4]
    assert Settings(batch_size=512, lr_scaling="linear").peak_lr == pytest.approx(0.4)
    assert Settings(batch_size=384, schedule="tbd-tf2").peak_lr == pytest.approx(0.15)


def test_every_key_has_a_meaning():
    assert all(meaning for _, _, meaning in describe())
    assert ("log_freq", "20") in [row[:2] for row in describe()]


@pytest.mark.parametrize("name", ["bs128", "bs2048-opt", "bs2048-warmup-opt", "bs256-prof"])
def test_a_quick_run_has_steps_enough_at_a_rate_that_it_reaches(name):
    quick = configuration(name).quick()
    assert quick.peak_lr == pytest.approx(0.02)
    assert quick.lr_warmup_epochs <= 1
    assert quick.max_epochs * quick.max_iters_per_epoch * quick.batch_size >= 6000
