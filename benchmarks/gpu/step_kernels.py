# SPDX-License-Identifier: MIT
"""Kernels of a replayed training step on a GPU: by name, how many and how long, from torch's profiler.

    python benchmarks/gpu/step_kernels.py mlp_s bert --B 8 --out DIR

`--out DIR` has kernels.csv: workload, kernel, launches and microseconds of a step.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
sys.path.insert(0, str(Path(__file__).parents[1] / "arrays"))
import command
from plain import all_built, drawn, rates
from setting import Setting
from workloads import WORKLOADS

import dnnsuite
from dnnsuite._files import write_text

STEPS = 5
_MOST_WARM_UP = 64


def runner_of(name: str, B: int, setting: Setting) -> tuple[dnnsuite.StepRunner, list[torch.Tensor]]:
    """Return a runner of B models of a workload that is past its recording, and its batch."""
    workload = WORKLOADS[name]
    array = dnnsuite.fuse(all_built(workload, B, setting))
    optimizer = dnnsuite.optim.Adam(array.parameters(), lr=rates(B))
    runner = dnnsuite.StepRunner(array, optimizer, workload.losses)
    batch = [dnnsuite.stack(x, B) for x in drawn(workload, setting)]
    for _ in range(_MOST_WARM_UP):
        runner.step(*batch)
        if runner.mode != "warming up":
            break
    return runner, batch


def kernels_of(name: str, B: int, setting: Setting) -> pandas.DataFrame:
    """Return the kernels of a step, the longest first: `launches` and `us` of one step."""
    runner, batch = runner_of(name, B, setting)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(STEPS):
            runner.step(*batch)
        torch.cuda.synchronize()
    rows = [(event.name, event.device_time) for event in profile.events()]
    table = pandas.DataFrame(rows, columns=["kernel", "us"])
    found = table.groupby("kernel")["us"].agg(launches="size", us="sum") / STEPS
    found = found.sort_values("us", ascending=False).reset_index()
    found.insert(0, "workload", name)
    print(f"{name}, B={B}: {runner.mode}; {found.launches.sum():.0f} launches, {found.us.sum():.0f} us of kernels")
    print(found.head(15).to_string(index=False, max_colwidth=90))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", metavar="WORKLOAD", choices=list(WORKLOADS))
    parser.add_argument("--B", type=int, default=8, help="number of models (default 8)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for kernels.csv")
    options = parser.parse_args()
    setting = Setting(device="cuda:0")
    setting.enter()
    tables = []
    for name in options.workloads:
        tables.append(kernels_of(name, options.B, setting))
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            write_text(options.out / "kernels.csv", pandas.concat(tables).to_csv(index=False))


if __name__ == "__main__":
    command.run(main, "workloads")
