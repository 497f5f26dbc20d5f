# SPDX-License-Identifier: MIT
"""`dnnsuite roofline`: peaks of this machine's CPUs, and a job's operators relative to them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import jobs
from .._files import write_json
from .._runs.spec import import_plugins
from ._late import figure, plots, results, roofs
from ._options import File, Json, Number, Text, Texts
from ._status import print_json, records, say

_ROWS = 20
_MENTIONED = 3
_FAR_PCT = 30.0
MOSTLY = 0.8  # of the CPUs: less, and something kept the job from them
_NO_PMU = "FLOPs are analytic, from the operators' shapes, not counted; bytes are inputs and outputs, each once"


def roofline(
    job: Annotated[Text, typer.Argument(help="A job to compare with the roofs.")] = None,
    models: Annotated[int, typer.Option("--B", help="Models in a fused array; 0: one plain torch model.")] = 0,
    batch_size: Annotated[Number, "Items of a batch.  [the job's]"] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps to observe.")] = 5,
    warmup: Annotated[int, typer.Option(min=0, help="Steps to run first, without observing them.")] = 5,
    threads: Annotated[Number, "CPU threads.  [one on each allowed CPU]"] = None,
    refresh: Annotated[bool, "Measure the roofs again."] = False,
    out: Annotated[File, "Folder for roofline.csv, .json and .png."] = None,
    plugin: Texts = None,
    quiet: bool = False,
    as_json: Json = False,
) -> int:
    """Measure the roofs of the CPUs, and compare a job with them.

    The roofs (matrix products in fp32 and bf16, STREAM's triad in each cache and in memory) are measured once and
    kept in the cache folder. They are measured again if the CPU, the allowed CPUs, the threads or torch change.
    """
    from ..profiler.roofline.peaks import digest

    import_plugins(plugin or [], [os.getcwd()])
    if job is not None:
        jobs.get(job)  # a wrong name is refused before the roofs are measured, which takes seconds
    tell = (lambda _: None) if quiet else say
    peaks = roofs.measure_peaks(threads, refresh, tell)
    now = roofs.probe_contention(peaks.threads, digest(peaks.machine))
    found, notes = None, [_NO_PMU]
    if job is not None:
        found, more = _observe(job, peaks, models, batch_size, steps, warmup, tell)
        notes += more
    record = {
        "job": job,
        "peaks": peaks.to_dict(),
        "contention_now": now.to_dict(),
        "summary": asdict(found.summary) if found is not None else None,
        "lanes": found.lanes if found is not None else None,
        "operators": records(found.table) if found is not None else [],
        "definitions": found.table.attrs["definitions"] if found is not None else {},
        "says": says(found, now) if found is not None else "",
        "notes": notes,
        "files": [],
    }
    if out is not None:
        record["files"] = _write(out, peaks, found, record)
    print_json(record) if as_json else print(_render(peaks, now, found, record))
    return 0


def _observe(
    job: str,
    peaks: roofs.Peaks,
    models: int,
    batch_size: int | None,
    steps: int,
    warmup: int,
    tell: Callable[[str], None],
) -> tuple[roofs.Roofline, list[str]]:
    """Run the job on a CPU and place its operators."""
    from ..profiler.cpu import observe_steps

    config = jobs.JobConfig(B=models, threads=peaks.threads)
    if batch_size is not None:
        config.batch_size = batch_size
    workload = jobs.get(job)(config)

    def step() -> None:
        workload.step()
        workload.synchronize()

    try:
        tell(f"setting up {job}")
        workload.setup()
        tell(f"{warmup} steps to warm up, {steps} observed")
        for _ in range(warmup):
            workload.step()
        workload.synchronize()
        observed = observe_steps(step, steps)
    finally:
        workload.close()
    notes = [note for note in observed.notes if "contention" in note]
    found = roofs.Roofline(peaks, observed.ops, observed.steps)
    if found.summary.pct_of_peak_cpu > 100:
        notes.append("the job does more than the peak by the CPU time it got: the peak was measured too low; --refresh")
    return found, notes


def _write(out: Path, peaks: roofs.Peaks, found: roofs.Roofline | None, record: dict[str, Any]) -> list[str]:

    out.mkdir(parents=True, exist_ok=True)
    axes = figure.Figure(figsize=(6.4, 4.0)).subplots()
    if found is None:
        roofs.draw(peaks, ax=axes)
    else:
        roofs.draw(peaks, found.table, axes, found.lanes)
        axes.set_title(f"{record['job']}: {found.summary.pct_of_peak:.1f} % of the peak", fontsize="medium")
        results.save_csv(found.table, out / "roofline.csv")
    plots.save(axes, out / "roofline.png")
    write_json(out / "roofline.json", record)
    names = ["roofline.csv", "roofline.json", "roofline.png"]
    return [str(out / name) for name in names if found is not None or name != "roofline.csv"]


def _render(peaks: roofs.Peaks, now: roofs.Contention, found: roofs.Roofline | None, record: dict[str, Any]) -> str:
    lines = [
        f"{peaks.machine['cpu_model']}, {peaks.threads} threads, torch {peaks.machine['torch']}; measured "
        f"{peaks.measured_at}",
        *(f"  {name:<8} {value / 1e9:9.1f} GFLOP/s  matrix product" for name, value in peaks.flops_per_s.items()),
        *(f"  {name:<8} {value / 1e9:9.1f} GB/s     triad" for name, value in peaks.bytes_per_s.items()),
        f"  now: {now}",
    ]
    if peaks.contention.busy:
        lines.append(f"  then: {peaks.contention}: the true roofs are higher; --refresh when nothing else runs")
    if found is not None:
        lines += ["", *_render_job(str(record["job"]), found, now)]
    lines += [f"note: {note}" for note in record["notes"]]
    return "\n".join([*lines, *record["files"]])


def _render_job(job: str, found: roofs.Roofline, now: roofs.Contention) -> list[str]:
    s = found.summary
    lines = [
        f"{job}: {s.steps} steps of {1e3 * s.step_s:.1f} ms wall, {1e3 * s.cpu_s:.1f} ms of CPU time "
        f"({s.cpu_s / s.step_s:.2f} CPUs), {s.flops_per_step / 1e9:.2f} GFLOP each",
        f"  {s.flops_per_s / 1e9:.1f} GFLOP/s: {s.pct_of_peak:.1f} % of the peak by wall time, "
        f"{s.pct_of_peak_cpu:.1f} % by the CPU time it got; the roofs would allow its operators "
        f"{s.attainable_pct:.0f} % of the time they took",
    ]
    if found.lanes > 1:
        lines.append(f"  {found.lanes} threads run operators at the same time: each has 1/{found.lanes} of the roofs")
    lines += ["", f"  {'operator':<44} {'phase':<9} {'time':>6} {'FLOP/B':>7} {'GFLOP/s':>8} {'GB/s':>7} {'roof':>6}"]
    for row in records(found.table.head(_ROWS)):
        lines.append(
            f"  {row['name'][:44]:<44} {row['phase'][:9]:<9} {row['share_pct']:5.1f}% {row['intensity']:7.2f} "
            f"{row['flops_per_s'] / 1e9:8.1f} {row['bytes_per_s'] / 1e9:7.1f} {row['attainable_pct']:5.0f}%  "
            f"{row['bound']}"
        )
    if len(found.table) > _ROWS:
        lines.append(f"  and {len(found.table) - _ROWS} more (--json or --out has all)")
    return [*lines, "", says(found, now)]


def says(found: roofs.Roofline, now: roofs.Contention) -> str:
    """Say in one line what limits the job, and where the most time can be won."""
    s = found.summary
    used, threads = s.cpu_s / s.step_s, found.peaks.threads
    if now.busy and used < MOSTLY * threads:
        return (
            f"other work used the CPUs ({used:.2f} of {threads} were ours, arithmetic takes {now.slowdown:.1f} times "
            "as long as alone): draw no conclusions from this, and measure again when it has ended"
        )
    lost_s = found.table["time_s"] * (1 - found.table["attainable_pct"].clip(0, 100) / 100)
    worst = found.table.loc[lost_s.nlargest(_MENTIONED).index]
    names = ", ".join(f"{row['name']} ({row['phase']}: {row['bound']})" for row in records(worst))
    idle = f"{used:.2f} of {threads} CPUs were used; " if used < MOSTLY * threads else ""
    where = "near its roofs" if s.attainable_pct >= 100 - _FAR_PCT else "below its roofs"
    return f"{idle}the job is {where}; most is to be won in {names}"
