# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.suites.entry import flags_of, settings_of

DEFAULTS = {
    "batch_size": 64, "repeat": 30, "number": 5, "lr": 0.1, "image_size": 64, "layers": "256 128", "use_gae": True,
    "fp16": "", "workers": 8, "learning_rate": 1e-3, "factors": 64, "sizes": None, "weights": "",
}  # fmt: skip


class Failed(Exception):
    pass


def fail(flag, problem):
    raise Failed(f"{flag} {problem}")


def test_flags_are_the_options_however_they_are_spelled():
    found = settings_of(
        {"--batch-size": "32", "--lr": "0.5", "--imageSize": 128, "--layers": "64 32", "--use-gae": "", "-j": 2,
         "-l": 5e-4, "-f": 8, "--repeat": 7.0, "--sizes": "3", "--weights": "/w"},
        DEFAULTS, fail,
    )  # fmt: skip
    assert found.options == {
        "batch_size": 32, "lr": 0.5, "image_size": 128, "layers": "64 32", "use_gae": True, "workers": 2,
        "learning_rate": 5e-4, "factors": 8, "repeat": 7, "sizes": "3", "weights": "/w",
    }  # fmt: skip
    assert (found.half, found.no_cuda, found.dataroot, found.ignored) == (False, False, None, {})


def test_flags_of_every_job():
    found = settings_of(
        {"--half": "", "--no-cuda": "", "/data/ImageNet/train": "", "--report": "x", "--no-save": ""}, DEFAULTS, fail
    )
    assert (found.half, found.no_cuda, found.dataroot) == (True, True, "/data/ImageNet/train")
    assert found.ignored == {"--report": "x", "--no-save": ""}
    assert settings_of({"--data": "/d"}, DEFAULTS, fail).dataroot == "/d"


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--batch-size", "many", "--batch-size must be a whole number, got 'many'"),
        ("--batch-size", 2.5, "--batch-size must be a whole number, got 2.5"),
        ("--lr", "x", "--lr must be a number, got 'x'"),
        ("--use-gae", "perhaps", "stands alone, or is true or false"),
        ("--numbr", 5, "--numbr is not a flag of this job; it has --batch-size, --repeat, --number"),
    ],
)
def test_refusals_name_the_flag(flag, value, words):
    with pytest.raises(Failed) as raised:
        settings_of({flag: value}, DEFAULTS, fail)
    assert words in str(raised.value)


def test_options_as_flags():
    assert flags_of({"batch_size": 3, "use_gae": True, "clip": False, "weights": "", "style": None, "lr": 0}) == {
        "--batch-size": 3,
        "--use-gae": "",
        "--lr": 0,
    }
