# SPDX-License-Identifier: MIT
"""`dnnsuite throughput`: items per second of a job over batch sizes, without instruments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from .._lazy import pandas as pd
from .._runs.folder import PROFILES_FILE, THROUGHPUT_FILE, default_out
from .._runs.interrupts import Interrupted
from .._shown import duration, percent, rate, size
from ..errors import Unavailable
from ._late import plots, sizes, throughput_request
from ._options import File, Json, Number, Real, Text, Texts
from ._status import FAILED, print_json, records, say, tell
from .plot import batch_sizes
from .profile import profile_job


def throughput(
    job: Annotated[str, "imagenet-resnet50, or a job (`dnnsuite list` names them)."],
    batch_sizes: Annotated[Text, "Batch sizes.  [1,2,4,8,16,32,64,96,128; quick: 1,2,4,8]"] = None,
    preset: Annotated[str, "quick (a small model, a minute on two cores), default or paper."] = "default",
    stop_iteration: Annotated[Number, "Iterations of a run, counted like TBD's.  [until the rate is known]"] = None,
    start_iteration: Annotated[
        Number, "First measured iteration; those before are warm-up.  [100, at most half]"
    ] = None,
    target: Annotated[
        Real, "Relative half width of the rate's 95 % interval at which a run ends.  [0.01; quick: 0.05]"
    ] = None,
    budget: Annotated[Real, "Seconds a run may take to reach --target.  [60; quick: 4]"] = None,
    repeats: Annotated[Number, "Processes for each size, interleaved.  [3; quick: 2; --stop-iteration: 1]"] = None,
    device: str = "auto",
    precision: Annotated[str, "Precision, if the job supports it."] = "fp32",
    B: Annotated[int, "Models in one fused array; 0: one plain model."] = 0,
    threads: Annotated[Number, "CPU threads.  [all]"] = None,
    seed: Annotated[int, "Seed of the first run of each size; run k uses seed + k."] = 0,
    data: str = "auto",
    dataroot: Annotated[Text, "Folder with the data set's files."] = None,
    option: Texts = None,
    plugin: Texts = None,
    timeout: Annotated[float, "Seconds that one run may take in all."] = 3600,
    utilization: Annotated[bool, "Count the use of the GPU's units at each size instead."] = False,
    out: Annotated[File, "Output directory.  [dnnsuite-runs/throughput-JOB-TIME]"] = None,
    resume: bool = False,
    allow_changed: Texts = None,
    quiet: bool = False,
    as_json: Json = False,
) -> int:
    """Measure items per second at each batch size.

    Each size runs in separate processes, interleaved, without instruments. Writes throughput.csv, throughput.png (rate,
    peak memory, the knee) and throughput_data/batch_N.log. A size that runs out of memory is a row. Ctrl-C loses only
    the current run; --resume continues.
    """
    plan = "quick" if preset == "quick" else "full"
    counts = throughput_request.parse_batch_sizes(batch_sizes)
    asked = throughput_request.Request(
        job, counts, B, device, precision, threads, seed, data, dataroot, {}, tuple(plugin or ()), timeout,
        plan, stop_iteration, start_iteration, repeats, target, budget,
    )  # fmt: skip
    request = asked.with_options(option or []).checked()
    file, name = (PROFILES_FILE, "utilization") if utilization else (THROUGHPUT_FILE, "throughput")
    where = out or default_out(f"{name}-{job}", file, resume)
    if utilization:
        return _utilization(request, where, as_json)
    return _measure(request, where, resume, allow_changed or (), quiet, as_json)


def _measure(
    request: throughput_request.Request,
    out: Path,
    resume: bool,
    allow_changed: Sequence[str],
    quiet: bool,
    as_json: bool,
) -> int:
    from ..profiling.throughput import measure

    try:
        table = measure(request, out, resume, quiet or as_json, allow_changed)
    except Interrupted:
        say(f"measured so far: {out}; to continue: dnnsuite throughput {request.job} ... --resume --out {out}")
        raise
    files = [out / "throughput_data", out / "throughput.csv"]
    if (table["rate"] > 0).any():
        files = [files[0], *batch_sizes(plots.Request((out,))).files]
    if as_json:
        print_json({"out": str(out), "rows": records(table), "files": [str(path) for path in files]})
    else:
        tell("\n".join([*_lines(table), *map(str, files)]))
    # A size that is too large for the memory is a finding.
    return 0 if set(table["status"]) <= {"ok", "oom"} and (table["status"] == "ok").any() else FAILED


def _lines(table: pd.DataFrame) -> list[str]:
    lines = ["batch size  rate (95 %)                                    step      peak memory  per doubling"]
    for row in table.to_dict("records"):
        if not row["rate"] > 0:
            lines.append(f"{row['batch_size']:>10}  {row['status']}: {row['message']}")
            continue
        told = rate(row["rate"], row["unit"], row["rate_low"], row["rate_high"])
        gain = percent(row["gain_pct"], signed=True) if row["gain_pct"] == row["gain_pct"] else ""
        memory, step = size(row["peak_memory_bytes"]), duration(row["ms_per_step"] / 1e3)
        mark = "  <- knee" if row["knee"] else ""
        lines.append(f"{row['batch_size']:>10}  {told:<45}  {step:>10}  {memory:>10}  {gain:>8}{mark}")
    measured = table[table["rate"] > 0]
    if len(measured) > 1 and not measured["knee"].any():
        lines.append(f"no knee: at {measured['batch_size'].iloc[-1]} the rate still grows by 5 % per doubling or more")
    return lines


def _utilization(request: throughput_request.Request, out: Path, as_json: bool) -> int:
    """TBD's measure_compute_util: a profile of the cores at each batch size."""
    if request.device == "cpu":
        raise Unavailable(
            "--utilization, which reads the counters of an NVIDIA GPU's cores,",
            f"the device {request.device}",
            "run it on a machine with one, or `dnnsuite profile`, which says where a step's time goes on a CPU",
        )
    # Ten iterations of ncu's replay in the original; here none is run again, and 12 make four windows.
    start = 10 if request.start_iteration is None else request.start_iteration
    count = 12 if request.stop_iteration is None else request.stop_iteration - start
    made = sizes.Request(
        request.job, request.batch_sizes, request.B, request.device, request.precision, request.threads, request.seed,
        request.data, request.dataroot, request.options, request.plugins, request.timeout_s, "cores", start, count,
    ).checked()  # fmt: skip
    return profile_job(made, out, as_json)
