# SPDX-License-Identifier: MIT
"""A suite that dies at a write goes on to the files of an undisturbed one. `DNNSUITE_KILLS=100` for every write."""

import json
import os
import re
from pathlib import Path

import pytest
import torch

from dnnsuite import results
from dnnsuite.suites import SUITE_FILE, run
from dying_writes import in_child

KILLS = int(os.environ.get("DNNSUITE_KILLS", "2"))


def told(out: Path) -> tuple[object, ...]:
    """What the files of a suite say, without times."""
    table = results.load(out).query("metric == 'throughput'")
    names = {re.sub(r"\d{8}-\d{6}-\d{3}", "TIME", str(p.relative_to(out))) for p in out.rglob("*") if p.is_file()}
    summary = re.sub(r"[\d.,]+ (?=MIN|s)", "", (out / "summary.txt").read_text())
    state = json.loads((out / SUITE_FILE).read_text())
    repeats = [repeat["complete"] for repeat in state["repeats"]]
    runs = sorted(zip(table["job"], table["repeat"], table["status"], table["changed"], strict=True))
    return names, summary, state["status"], repeats, runs


@pytest.mark.timeout(900)
def test_a_kill_at_a_write_leaves_what_goes_on_to_the_files_of_an_undisturbed_suite(toys: None, tmp_path: Path) -> None:
    torch.set_num_threads(1)  # a fork has no threads of torch's
    jobs = tmp_path / "toys.json"
    jobs.write_text(json.dumps([{"name": "toy-nap", "args": {"--repeat": 2, "--number": 1}}]))

    def suite(out: Path, resume: bool = False) -> None:
        run(jobs, out, resume, quiet=True, plugins=["suite_toys"], device="cpu", copies="1", repeat=2)

    writes = in_child(lambda: suite(tmp_path / "whole"))
    whole = told(tmp_path / "whole")
    assert writes > 10
    last_of_first = writes // 2 - 2  # about the end of the first run: its record is there, what is beside it is not
    for number in sorted({last_of_first, *range(1, writes + 1, max(1, writes // KILLS))}):
        out = tmp_path / str(number)
        assert in_child(lambda out=out, number=number: suite(out), number) is None
        in_child(lambda out=out: suite(out, (out / SUITE_FILE).is_file()))
        assert told(out) == whole, number
