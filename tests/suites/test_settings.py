# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.suites._settings import Settings


def test_what_is_not_given_keeps_its_default():
    assert Settings.of({"repeat": None, "pin": "none", "names": ["x"]}) == Settings(pin="none")
    assert Settings(**Settings(repeat=3).to_dict()) == Settings(repeat=3)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"repeat": 0}, "--repeat 0: must be at least 1"),
        ({"timeout_s": 0.0}, "--timeout 0.0: must be positive"),
        ({"timeout_s": float("nan")}, "--timeout nan: must be positive"),
        ({"pin": "hard"}, "--pin hard: accepted: auto, cgroup, affinity, none"),
        ({"require": "all"}, "--require all: accepted: none, affinity, cgroup"),
        ({"order": "random"}, "--order random: accepted: fixed, shuffled"),
    ],
)
def test_refusals(asked, words):
    with pytest.raises(InvalidArgument, match=words):
        Settings.of(asked)
