# SPDX-License-Identifier: MIT
import json

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.training import Settings
from dnnsuite.training.settings import SHIPPED, configuration, configurations, overrides

# The constructs of the tutorial's file: anchors, merges, tags, a quoted None, comments.
YAML = """
default: &DEFAULT
  lr: !!float 0.1
  weight_decay: !!float 5e-4
  # of the data
  cifar100_mean: [0.5, 0.25, 0.125]
  data_path: 'None' # downloaded
  log_to_screen: !!bool True
  enable_amp: !!bool False

bs256-amp:
  <<: *DEFAULT
  lr: !!float 0.14
  batch_size: 256
  enable_amp: True
"""
AMP, NHWC, EXTRA = "enable_amp", "enable_nhwc", "enable_extra_opts"
OPTIMISED = {AMP, NHWC, EXTRA}
TABLE = {  # name → lr, batch, epochs, warm-up, what is switched on
    "default": (0.1, 128, 100, 0, set()),
    "bs128": (0.1, 128, 100, 0, set()),
    "bs256": (0.14, 256, 100, 0, set()),
    "bs256-prof": (0.14, 256, 2, 0, set()),
    "bs256-amp": (0.14, 256, 100, 0, {AMP}),
    "bs256-amp-prof": (0.14, 256, 2, 0, {AMP}),
    "bs256-amp-nhwc": (0.14, 256, 100, 0, {AMP, NHWC}),
    "bs256-amp-nhwc-prof": (0.14, 256, 2, 0, {AMP, NHWC}),
    "bs256-amp-nhwc-extra-opts": (0.14, 256, 100, 0, OPTIMISED),
    "bs256-amp-nhwc-extra-opts-prof": (0.14, 256, 2, 0, OPTIMISED),
    "bs128-opt": (0.1, 128, 100, 0, OPTIMISED),
    "bs512-opt": (0.2, 512, 120, 0, OPTIMISED),
    "bs1024-opt": (0.28, 1024, 120, 0, OPTIMISED),
    "bs2048-opt": (0.4, 2048, 120, 0, OPTIMISED),
    "bs1024-warmup-opt": (0.28, 1024, 120, 8, OPTIMISED),
    "bs2048-warmup-opt": (0.4, 2048, 120, 16, OPTIMISED),
}


def test_the_sixteen_that_ship():
    found = configurations()
    assert list(found) == list(TABLE)
    for name, (lr, batch, epochs, warmup, on) in TABLE.items():
        own = found[name]
        assert (own.lr, own.batch_size, own.max_epochs, own.lr_warmup_epochs) == (lr, batch, epochs, warmup)
        assert {key for key in OPTIMISED if getattr(own, key)} == on
        profiled = name.endswith("-prof")
        assert (own.enable_profiling, own.save_checkpoint) == (profiled, not profiled)


def test_defaults_are_sc20s():
    own = configuration("default")
    assert (own.momentum, own.weight_decay, own.rnd_rotation_angle, own.num_data_workers) == (0.9, 5e-4, 15, 6)
    assert (own.num_classes, own.valid_batch_size_per_gpu, own.log_freq) == (100, 128, 20)
    assert (own.profiling_epoch_start, own.profiling_iters_per_epoch, own.data_path) == (2, 100, "./data")
    assert own.cifar100_std == (0.2673342858792401, 0.2564384629170883, 0.27615047132568404)


def test_a_file_of_the_tutorials_form(tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "cifar100.yaml"
    path.write_text(YAML)
    found = configurations(path)
    assert found["default"] == Settings(cifar100_mean=(0.5, 0.25, 0.125), data_path=None)
    assert found["bs256-amp"].batch_size == 256
    assert found["bs256-amp"].enable_amp
    assert found["bs256-amp"].weight_decay == 5e-4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: {lerning: 1}", "unknown key 'lerning'"),
        ("a: {log_frq: 1}", "did you mean 'log_freq'"),
        ("a: [1]", "'a' is not a configuration"),
        ("[1, 2]", "holds no configurations"),
        ("", "holds no configurations"),
        ("a: {lr: !!float x}", "cannot be read"),
        ("a: {b", "cannot be read"),
        ("a: !!python/object/apply:os.getcwd []", "cannot be read"),
    ],
)
def test_a_bad_file_is_named(tmp_path, text, words):
    pytest.importorskip("yaml")
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=f"own.yaml.*{words}"):
        configurations(path)


def test_json_needs_no_yaml(tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"mine": {"lr": 1}}))
    assert configuration("mine", path) == Settings(lr=1.0)
    assert SHIPPED.suffix == ".json"


def test_an_unknown_name_tells_the_nearest(tmp_path):
    with pytest.raises(InvalidArgument, match=r"no configuration 'bs2048-warmup' \(did you mean 'bs2048-warmup-opt'"):
        configuration("bs2048-warmup")
    with pytest.raises(InvalidArgument, match=r"gone\.yaml cannot be read"):
        configuration("x", tmp_path / "gone.yaml")


def test_overrides():
    assert overrides(["lr=1", "data_path=a=b"]) == {"lr": "1", "data_path": "a=b"}
    for texts, words in ((["lr"], "not key=value"), (["=1"], "not key=value"), (["lr=1", "lr=2"], "given twice")):
        with pytest.raises(InvalidArgument, match=words):
            overrides(texts)


def test_tbds_settings_ship_by_name():
    found = configurations("imagenet-resnet50")
    first, second = found["tbd-pytorch"], found["tbd-tf2"]
    assert found["default"] == first
    assert (first.batch_size, first.peak_lr, first.max_epochs, first.log_freq) == (32, 0.0125, 90, 10)
    assert (second.batch_size, second.num_classes, second.log_freq) == (384, 1000, 100)
    assert second.peak_lr == pytest.approx(0.15)
    assert {each.weight_decay for each in found.values()} == {1e-4}
    assert configuration("bs512-opt", "sc20") == configuration("bs512-opt")


def test_a_configuration_given_as_a_file_is_told_where_to_stand():
    with pytest.raises(InvalidArgument, match=r"bs256 cannot be read.*a configuration with --config"):
        configurations("bs256")
