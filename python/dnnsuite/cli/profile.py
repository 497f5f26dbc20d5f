# SPDX-License-Identifier: MIT
"""`dnnsuite profile`: where the time of a job's steps goes, by batch size, or of a script of the user's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from .. import jobs
from .._runs.folder import PROFILES_FILE, default_out
from .._runs.spec import import_plugins
from .._shown import percent, rate
from ..errors import InvalidArgument
from ._late import figure, plots, sizes, throughput_request
from ._options import File, Json, Number, Text, Texts
from ._status import say, tell


def profile(
    target: Annotated[list[str], "A job (`dnnsuite list` names them), or -- and a command."],
    start_iteration: Annotated[int, "First iteration to observe."] = 10,
    profile_iterations: Annotated[int, "Number of iterations to observe."] = 12,
    metrics: Annotated[str, "What to observe, several joined by |."] = "timeline",
    batch_sizes: Annotated[Text, "Batch sizes; each gets a profile.  [the job's]"] = None,
    device: str = "auto",
    precision: Annotated[str, "Precision, if the job supports it."] = "fp32",
    B: Annotated[int, "Models in one fused array; 0: one plain model."] = 0,
    threads: Annotated[Number, "CPU threads.  [all]"] = None,
    seed: Annotated[int, "Seed of the models."] = 0,
    data: str = "auto",
    dataroot: Annotated[Text, "Folder with the data set's files."] = None,
    plugin: Texts = None,
    timeout: Annotated[float, "Seconds that one batch size may take."] = 3600,
    monitor: str = "auto",
    step_on: Annotated[str, "What ends a step of a script; gradient is torch.autograd.grad."] = "auto",
    stop: Annotated[bool, "End a script once it has been observed."] = False,
    out: Annotated[File, "Output directory.  [dnnsuite-runs/profile-NAME-TIME]"] = None,
    resume: bool = False,
    quiet: bool = False,
    as_json: Json = False,
) -> int:
    """Profile a job or your own script: where step time goes.

    Prints the parts of a step, the cost of profiling, and advice. With -- it runs your own script, unmodified:
    dnnsuite profile -- python train.py --lr 0.1. A step ends with the step of the optimizer; without torch.optim, with
    backward; without gradients, with the call of the model (--step-on). Each window is written when it closes, so a
    kill loses none. If --out has an earlier run, a new folder is created next to it. The exit status is that of the
    script.
    """
    import_plugins(plugin or [], [str(Path.cwd())])
    is_job = target[0] in jobs.names()
    if len(target) > 1 or "--" in sys.argv or (not is_job and _is_command(target[0])):
        from ..profiling.script import run_script

        where = out or default_out(f"profile-{Path(target[0]).name}", PROFILES_FILE, False)
        return run_script(
            target, where, start_iteration, profile_iterations, metrics, stop, as_json, monitor, step_on, quiet
        )
    if target[0].endswith(".py"):
        raise InvalidArgument(f"{target[0]} is not a job; to profile a script: dnnsuite profile -- python {target[0]}")
    counts = throughput_request.parse_batch_sizes(batch_sizes)
    request = sizes.Request(
        target[0], counts, B, device, precision, threads, seed, data, dataroot, {}, tuple(plugin or ()), timeout,
        metrics, start_iteration, profile_iterations, monitor,
    ).checked()  # fmt: skip
    return profile_job(request, out or default_out(f"profile-{request.job}", PROFILES_FILE, resume), as_json, quiet)


def _is_command(word: str) -> bool:
    import shutil

    return shutil.which(word) is not None


def profile_job(request: sizes.Request, out: Path, as_json: bool, quiet: bool = False) -> int:
    """Profile a job at each batch size, write the files and print the figures; return the exit status."""
    from ..profiling.sizes import hint

    results = sizes.profiles(request, out, (lambda _: None) if quiet else say)
    files = _write(results, out)
    hints = hint(results, request.device)
    if as_json:
        told = {"out": str(out), "rows": sizes.rows(results), "profiles": results}
        print(json.dumps({**told, "files": list(map(str, files)), "hints": hints}))
    else:
        _print(results)
        for line in hints:
            print(line)
        for path in files:
            tell(str(path))
    return 0 if all(result["status"] == "ok" for result in results) else 1


def _write(results: list[dict[str, Any]], out: Path) -> list[Path]:
    """Write the files about all batch sizes, and a CSV per size."""
    from ..profiler.trace import sizes as draw
    from ..results import save_csv

    made = sizes.table(results)
    files = [out / "batches.csv"]
    save_csv(made, files[0])
    finished = [result for result in results if result["status"] == "ok"]
    for result in finished:
        files.append(out / f"batch_{result['batch_size']}.csv")
        save_csv(sizes.metrics(result), files[-1])
    if finished:
        axes = figure.Figure(figsize=(10, 3.6), layout="constrained").subplots(1, 2)
        draw(made[made["status"] == "ok"], axes[1], axes[0])
        files.append(out / "batches.png")
        plots.save(axes[0], files[-1])
    return [*files, *(Path(result["directory"]) for result in finished)]


def _print(results: list[dict[str, Any]]) -> None:
    finished = [result for result in results if result["status"] == "ok"]
    if len(finished) == 1:
        tell((Path(finished[0]["directory"]) / "summary.txt").read_text())
    if len(results) == 1 and finished:
        return
    print("batch size  rate (95 %)                          CPUs busy  overhead  largest shares of a step")
    for row in sizes.rows(results):
        tell(_row_text(row))
    for result in finished:
        first = result["profile"]["advice"][0]
        print(f"batch size {result['batch_size']}: {first['action']}\n  because {first['because']} [{first['rule']}]")


def _row_text(row: dict[str, Any]) -> str:
    if row["status"] != "ok":
        return f"{row['batch_size']:>10}  {row['status']}: {row['message']}"
    told = "not known"
    if row["rate"] is not None:
        told = rate(row["rate"], row["unit"], row["rate_low"], row["rate_high"])
    cost = "?" if row["overhead_pct"] is None else percent(row["overhead_pct"], signed=True)
    shares = sorted(((value, key) for key, value in row.items() if key.endswith("(%)")), reverse=True)[:3]
    largest = ", ".join(f"{key.removesuffix(' (%)')} {percent(value)}" for value, key in shares)
    return f"{row['batch_size']:>10}  {told:<35}  {percent(row['cpu_busy_pct']):>9}  {cost:>8}  {largest}"
