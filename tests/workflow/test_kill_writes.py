# SPDX-License-Identifier: MIT
"""A workflow that dies at a write goes on to what an undisturbed one has. `DNNSUITE_KILLS=100` for every write."""

import json
import os
import re
from pathlib import Path

import pytest
import torch

from dnnsuite import results
from dnnsuite.workflow.sweep import run
from dying_writes import in_child

KILLS = int(os.environ.get("DNNSUITE_KILLS", "2"))


def told(out: Path) -> tuple[object, ...]:
    """What the files of a workflow say, without times."""
    table = results.load(out).query("metric == 'throughput' and replica.isna()")
    names = {re.sub(r"\d{8}-\d{6}-\d{3}", "TIME", str(p.relative_to(out))) for p in out.rglob("*") if p.is_file()}
    state = json.loads((out / "workflow.json").read_text())
    points = sorted(zip(table["mode"], table["B"], table["repeat"], table["status"], strict=True))
    return names, points, state["Bs"], state["status"], state["problems"], state["changed"]


@pytest.mark.timeout(900)
def test_a_kill_at_a_write_leaves_what_goes_on_to_the_same_workflow(toys: None, quiet: None, tmp_path: Path) -> None:
    torch.set_num_threads(1)  # a fork has no threads of torch's

    def workflow(out: Path) -> None:
        again = (out / "workflow.json").is_file()
        own = {} if again else {"modes": ["serial"], "repeats": 2, "epochs": 2, "iters_per_epoch": 2}
        run("toy", out, resume=again, quiet=True, plugins=["toy_jobs"], **own)

    writes = in_child(lambda: workflow(tmp_path / "whole"))
    whole = told(tmp_path / "whole")
    assert writes > 8
    for number in range(2, writes + 1, max(1, writes // KILLS)):
        out = tmp_path / str(number)
        assert in_child(lambda out=out, number=number: workflow(out), number) is None
        in_child(lambda out=out: workflow(out))
        assert told(out) == whole, number
