# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.suites._settings import SuiteSettings


def test_what_is_not_given_keeps_its_default():
    assert SuiteSettings.of({"repeat": None, "pin": "none", "names": ["x"]}) == SuiteSettings(pin="none")
    assert SuiteSettings(**SuiteSettings(repeat=3).to_dict()) == SuiteSettings(repeat=3)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"repeat": 0}, "--repeats 0: must be 1 to 10,000"),
        ({"timeout_s": 0.0}, "--timeout 0.0: must be a positive number of seconds"),
        ({"timeout_s": float("nan")}, "--timeout nan: must be a positive number of seconds"),
        ({"pin": "hard"}, "--pin hard: accepted: auto, cgroup, affinity, none"),
        ({"require": "all"}, "--require all: accepted: none, affinity, cgroup"),
        ({"order": "random"}, "--order random: accepted: fixed, shuffled"),
    ],
)
def test_refusals(asked, words):
    with pytest.raises(InvalidArgument, match=words):
        SuiteSettings.of(asked)
