# SPDX-License-Identifier: MIT
"""What a training step gives a GPU to do, counted without one: operators, kernel launches, and bytes moved.

    python benchmarks/gpu/counts.py                          # every workload, B = 8
    python benchmarks/gpu/counts.py lstm bert --out DIR      # DIR/gpu-counts.csv and .md
    python benchmarks/gpu/counts.py --before old/gpu-counts.csv --out DIR

The CPU stands in for the GPU: an array takes the ways of a GPU, on the CPU's kernels, and every operator of one step
(forward, losses, backward, Adam) is counted. `operators` leaves out views and empty tensors, which launch nothing.
`launches` are those of this package's CUDA kernels as the operators start them, and of torch's operators as a rule one
each; what a library splits, or joins, and what an operator copies inside, is not seen here. `MB` is each operator's
tensors, once. One replay of a CUDA graph launches all of it with one call.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import pandas
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
sys.path.insert(0, str(Path(__file__).parents[1] / "arrays"))
import command
from plain import all_built, drawn, rates
from setting import Setting
from step_work import Operation, operations
from workloads import WORKLOADS

import dnnsuite
from dnnsuite._files import write_text
from dnnsuite.ops.device import cpu_for_gpu

NONE = ("aten::empty", "aten::new_empty", "aten::lift_fresh", "aten::_unsafe_view", "aten::unsafe_view")
"""What launches no kernel, by the beginning of its name."""

LAUNCHES = {
    "dnnsuite::batch_norm_act": 2,
    "dnnsuite::batch_norm_act_running_": 2,
    "dnnsuite::batch_norm_act_counted_": 2,
    "dnnsuite::batch_norm_act_backward": 2,
    "dnnsuite::layer_norm_backward": 4,
    "dnnsuite::bias_dropout_add_layer_norm_backward": 5,
    "dnnsuite::bias_act_dropout_backward": 2,
    "dnnsuite::rms_norm_backward": 3,
    "dnnsuite::group_norm": 2,
    "dnnsuite::group_norm_backward": 4,
    "dnnsuite::depthwise_backward_weight": 2,
    "dnnsuite::cross_entropy": 2,
    "dnnsuite::cross_entropy_backward": 2,
    "dnnsuite::gradient_norms": 2,
    "aten::convolution_backward": 3,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": 3,
}
"""Kernels of an operator that has more than one: at most, for sums over rows that are one task need no second."""


def launches(operation: Operation) -> int:
    """Return the number of kernels of one operator's call."""
    return 0 if operation.name.startswith(NONE) else LAUNCHES.get(operation.name, 1)


def step_operations(name: str, B: int) -> list[Operation]:
    """Return the operators of a step of B models of a workload, after a first that makes what is kept."""
    with cpu_for_gpu():  # also while the array is made: weights lie as a GPU has them
        workload, setting = WORKLOADS[name], Setting()
        array = dnnsuite.fuse(all_built(workload, B, setting))
        optimizer = dnnsuite.optim.Adam(array.parameters(), lr=rates(B))
        batch = [dnnsuite.stack(x, B) for x in drawn(workload, setting)]

        def step() -> None:
            optimizer.zero_grad()
            workload.losses(array, *batch).sum().backward()
            optimizer.step()

        step()
        return operations(step)


def counted(name: str, B: int) -> dict[str, object]:
    """Return one row of the table."""
    found = [operation for operation in step_operations(name, B) if launches(operation)]
    return {
        "workload": name,
        "B": B,
        "operators": len(found),
        "launches": sum(map(launches, found)),
        "MB": round(sum(operation.work.bytes for operation in found) / 1e6, 1),
        "most": ", ".join(f"{what} {n}" for what, n in Counter(operation.name for operation in found).most_common(4)),
    }


def text(table: pandas.DataFrame, before: pandas.DataFrame | None) -> str:
    """Return the table in Markdown; with what was there before, if that is given."""
    lines = [
        "# A training step in GPU counts",
        "",
        "Counted by `python benchmarks/gpu/counts.py` on a CPU that stands in for a GPU; no GPU was there. Operators "
        "without views and",
        "empty tensors; kernels as this package's operators launch them, of torch's operators as a rule one each; "
        "megabytes of every",
        "operator's tensors, once.",
        "",
    ]
    names = ["operators", "launches", "MB"]
    if before is not None:
        lines[-2] += " In brackets: before."
        table = table.merge(
            before[["workload", "B", *names]], how="left", on=["workload", "B"], suffixes=("", "_before")
        )
    lines += ["| workload | B | operators | launches | MB | most of them |", "|---|---|---|---|---|---|"]
    for row in table.to_dict("records"):
        cells = [
            f"{row[name]:g}" + (f" ({row[f'{name}_before']:g})" if row.get(f"{name}_before", float("nan")) > 0 else "")
            for name in names
        ]
        lines.append(f"| {row['workload']} | {row['B']} | {' | '.join(cells)} | {row['most']} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--B", type=int, default=8, help="number of models (default 8)")
    parser.add_argument("--before", type=Path, metavar="CSV", help="counts of an earlier state, to set beside")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for gpu-counts.csv and gpu-counts.md")
    options = parser.parse_args()
    if unknown := [name for name in options.workloads if name not in WORKLOADS]:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    before = pandas.read_csv(options.before) if options.before else None
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for name in options.workloads or WORKLOADS:
        rows.append(counted(name, options.B))
        print("{workload}: {operators} operators, {launches} launches, {MB} MB".format(**rows[-1]), flush=True)
        if options.out:
            table = pandas.DataFrame(rows)
            options.out.mkdir(parents=True, exist_ok=True)
            write_text(options.out / "gpu-counts.csv", table.to_csv(index=False))
            write_text(options.out / "gpu-counts.md", text(table, before))


if __name__ == "__main__":
    command.run(main, "workloads")
