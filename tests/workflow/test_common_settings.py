# SPDX-License-Identifier: MIT
"""Settings that sweeps and comparisons of convergence share."""

from pathlib import Path

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.workflow.common_settings import (
    CommonSettings,
    at_least,
    dataroot_of,
    flag,
    one_of,
    options_by_name,
    positive,
    resolve_common,
)

DEFAULTS = {"timeout_s": 60.0, "epochs": 7, "repeats": 9}


def test_what_is_given_wins_over_the_preset_and_that_over_the_defaults(toys: None, tmp_path: Path) -> None:
    given = {"plugins": ["toy_jobs"], "batch_size": 5, "dataroot": str(tmp_path), "threads": 1, "device": "cpu"}
    kind, preset, common = resolve_common("toy", given, DEFAULTS)
    assert kind.name == "toy"
    assert preset["repeats"] == 1  # the job's
    settings = CommonSettings(**common)
    assert (settings.batch_size, settings.epochs, settings.timeout_s) == (5, 2, 60.0)
    assert settings.dataroot == str(tmp_path)
    assert CommonSettings.from_dict(settings.to_dict()) == settings


def test_short_options_are_of_the_preset_quick(toys: None) -> None:
    short = {"transformer": {"nhid": 8}}
    options = [
        resolve_common("transformer", {"preset": preset, "device": "cpu"}, DEFAULTS, short)[2]["options"]
        for preset in ("quick", "default")
    ]
    assert [found.get("nhid") for found in options] == [8, None]
    given = {"preset": "quick", "device": "cpu", "options": ["nhid=4"]}
    assert resolve_common("transformer", given, DEFAULTS, short)[2]["options"]["nhid"] == 4


def test_refusals_name_the_flag() -> None:
    with pytest.raises(InvalidArgument, match="--max-num-Bs 0: must be at least 1"):
        at_least("max_num_Bs", 0)
    with pytest.raises(InvalidArgument, match=r"--timeout 0\.0: must be positive"):
        positive("timeout_s", 0)
    with pytest.raises(InvalidArgument, match=r"--repeats 2\.5: must be a whole number"):
        at_least("repeats", 2.5)
    with pytest.raises(InvalidArgument, match="--timeout 'long': must be a number"):
        positive("timeout_s", "long")
    with pytest.raises(InvalidArgument, match="unknown colour 'red'; accepted: blue, green"):
        one_of("colour", "red", ["blue", "green"])
    with pytest.raises(InvalidArgument, match="--dataroot /none: no such directory"):
        dataroot_of("/none")
    assert flag("units") == "--unfused"


def test_options_from_python_by_either_name() -> None:
    known = {"modes", "plan", "timeout_s", "units"}
    given = {"modes": "serial,hfta", "plan": 4, "timeout": 5.0, "unfused": ["bn1"]}
    found = options_by_name(given, known)
    assert found == {"modes": ["serial,hfta"], "plan": [4], "timeout_s": 5.0, "units": ["bn1"]}
    with pytest.raises(InvalidArgument, match=r"no option 'mode' \(did you mean 'modes'"):
        options_by_name({"mode": "serial"}, known)
