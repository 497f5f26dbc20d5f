# SPDX-License-Identifier: MIT
"""`dnnsuite profile`: where the time of a job's steps goes, by batch size, or of a script of the user's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from .._shown import percent, rate
from ._options import Json, Number, Quiet, Text, Texts
from ._status import say, tell

if TYPE_CHECKING:
    from ..profiling.sizes import Request


def profile(
    target: Annotated[
        list[str], typer.Argument(help="A job (`dnnsuite list` names them), or -- and a command.", show_default=False)
    ],
    start_iteration: Annotated[int, typer.Option(help="First iteration to observe.")] = 10,
    profile_iterations: Annotated[int, typer.Option(help="Number of iterations to observe.")] = 12,
    metrics: Annotated[str, typer.Option(help="What to observe, several joined by |.")] = "timeline",
    batch_sizes: Annotated[Text, typer.Option(help="Batch sizes; each gets a profile.  [the job's]")] = None,
    device: Annotated[str, typer.Option()] = "auto",
    precision: Annotated[str, typer.Option(help="Precision, if the job supports it.")] = "fp32",
    B: Annotated[int, typer.Option("--B", help="Models in one fused array; 0: one plain model.")] = 0,
    threads: Annotated[Number, typer.Option(help="CPU threads.  [all]")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the models.")] = 0,
    data: Annotated[str, typer.Option()] = "auto",
    dataroot: Annotated[Text, typer.Option(help="Folder with the data set's files.")] = None,
    plugin: Annotated[Texts, typer.Option()] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that one batch size may take.")] = 3600,
    monitor: Annotated[str, typer.Option()] = "auto",
    step_on: Annotated[
        str,
        typer.Option(
            help="What ends a step of a script; gradient is torch.autograd.grad."
        ),
    ] = "auto",
    stop: Annotated[bool, typer.Option("--stop", help="End a script once it has been observed.")] = False,
    out: Annotated[Optional[Path], typer.Option(help="Output directory.  [dnnsuite-runs/profile-NAME-TIME]")] = None,  # noqa: UP045
    resume: Annotated[bool, typer.Option("--resume")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:  # fmt: skip
    """Profile a job or your own script: where step time goes.

    Prints the parts of a step, the cost of profiling, and advice. With -- it runs your own script, unmodified:
    dnnsuite profile -- python train.py --lr 0.1. A step ends with the step of the optimizer; without torch.optim, with
    backward; without gradients, with the call of the model (--step-on). Each window is written when it closes, so a
    kill loses none. If --out has an earlier run, a new folder is created next to it. The exit status is that of the
    script.
    """
    from .. import jobs
    from .._runs.folder import PROFILES_FILE, default_out
    from .._runs.spec import import_plugins

    import_plugins(plugin or [], [str(Path.cwd())])
    is_job = target[0] in jobs.names()
    if len(target) > 1 or "--" in sys.argv or (not is_job and _is_command(target[0])):
        from ..profiling.script import run_script

        where = out or default_out(f"profile-{Path(target[0]).name}", PROFILES_FILE, False)
        return run_script(
            target, where, start_iteration, profile_iterations, metrics, stop, as_json, monitor, step_on, quiet
        )
    from ..errors import InvalidArgument
    from ..profiling.sizes import Request
    from ..profiling.throughput_request import parse_batch_sizes

    if target[0].endswith(".py"):
        raise InvalidArgument(f"{target[0]} is not a job; to profile a script: dnnsuite profile -- python {target[0]}")
    request = Request(
        target[0], parse_batch_sizes(batch_sizes), B, device, precision, threads, seed, data, dataroot, {},
        tuple(plugin or ()), timeout, metrics, start_iteration, profile_iterations, monitor,
    ).checked()  # fmt: skip
    return profile_job(request, out or default_out(f"profile-{request.job}", PROFILES_FILE, resume), as_json, quiet)


def _is_command(word: str) -> bool:
    import shutil

    return shutil.which(word) is not None


def profile_job(request: Request, out: Path, as_json: bool, quiet: bool = False) -> int:
    """Profile a job at each batch size, write the files and print the figures; return the exit status."""
    from ..profiling.sizes import hint, profiles, rows

    results = profiles(request, out, (lambda _: None) if quiet else say)
    files = _write(results, out)
    hints = hint(results, request.device)
    if as_json:
        print(
            json.dumps(
                {
                    "out": str(out),
                    "rows": rows(results),
                    "profiles": results,
                    "files": list(map(str, files)),
                    "hints": hints,
                }
            )
        )
    else:
        _print(results)
        for line in hints:
            print(line)
        for path in files:
            tell(str(path))
    return 0 if all(result["status"] == "ok" for result in results) else 1


def _write(results: list[dict[str, Any]], out: Path) -> list[Path]:
    """Write the files about all batch sizes, and a CSV per size."""
    from matplotlib.figure import Figure

    from .. import plots
    from ..profiler.trace import sizes
    from ..profiling.sizes import metrics, table
    from ..results import save_csv

    made = table(results)
    files = [out / "batches.csv"]
    save_csv(made, files[0])
    finished = [result for result in results if result["status"] == "ok"]
    for result in finished:
        files.append(out / f"batch_{result['batch_size']}.csv")
        save_csv(metrics(result), files[-1])
    if finished:
        axes = Figure(figsize=(10, 3.6), layout="constrained").subplots(1, 2)
        sizes(made[made["status"] == "ok"], axes[1], axes[0])
        files.append(out / "batches.png")
        plots.save(axes[0], files[-1])
    return [*files, *(Path(result["directory"]) for result in finished)]


def _print(results: list[dict[str, Any]]) -> None:
    from ..profiling.sizes import rows

    finished = [result for result in results if result["status"] == "ok"]
    if len(finished) == 1:
        tell((Path(finished[0]["directory"]) / "summary.txt").read_text())
    if len(results) == 1 and finished:
        return
    print("batch size  rate (95 %)                          CPUs busy  overhead  largest shares of a step")
    for row in rows(results):
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
