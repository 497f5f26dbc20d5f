# SPDX-License-Identifier: MIT
from dataclasses import replace
from pathlib import Path

import pytest

from dnnsuite._runs.failures import CLASSES
from dnnsuite._runs.folder import final, refuse_other_settings
from dnnsuite._runs.record import Device, Machine, Moment, RunRecord, Verdict
from dnnsuite.errors import InvalidArgument

RUN = RunRecord(
    id="a", kind="suite", plan_id="", plan="toy", job="toy", mode="shares", precision="fp32", B=1, repeat=0,
    verdict=Verdict.good(), machine=Machine(), device=Device("cpu"), started=Moment.now(), unit="naps",
)  # fmt: skip


def test_findings_are_final_and_accidents_are_not() -> None:
    assert final(RUN)
    fates = {failure: final(replace(RUN, verdict=Verdict.failed(failure, "m"))) for failure in CLASSES}
    assert [failure for failure, is_final in fates.items() if is_final] == ["oom", "nan", "invalid"]


def test_only_what_differs_is_refused() -> None:
    refuse_other_settings(Path("out"), [])
    with pytest.raises(InvalidArgument, match=r"--resume: out was made with other settings: a is 1, was 2; b.*--out"):
        refuse_other_settings(Path("out"), ["a is 1, was 2", "b is 3, was 4"])
