# SPDX-License-Identifier: MIT
import json

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.suites.entry import SuiteEntry

ENTRY = SuiteEntry(
    3, "vae.2", "vae", "vae", "./x/run.sh", "student", 50, 30, 128, "fp16", "cuda", "real", "/d",
    {"lr": 0.1, "gae": True}, {"--report": "r"},
)  # fmt: skip


def test_it_survives_the_record() -> None:
    kept = json.loads(json.dumps(ENTRY.to_dict()))
    assert SuiteEntry.from_dict(kept) == ENTRY
    with pytest.raises(InvalidArgument, match=r"another version \(its jobs differ in: colour\)"):
        SuiteEntry.from_dict({**kept, "colour": "red"})


def test_as_a_job_and_as_the_original_take_it() -> None:
    config = ENTRY.config(seed=7, threads=2)
    assert (config.B, config.seed, config.data_seed, config.threads, config.options) == (0, 7, 7, 2, ENTRY.options)
    assert (config.device, config.precision, config.data, config.dataroot) == ("cuda", "fp16", "real", "/d")
    assert ENTRY.command_line() == (
        "./x/run.sh --repeat 50 --number 30 --batch-size 128 --lr 0.1 --gae --dataroot /d --report r --cuda"
    )
