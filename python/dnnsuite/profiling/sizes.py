# SPDX-License-Identifier: MIT
"""Profiles of one job over batch sizes: a process for each, a row for each, and what they have in common."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import TEMPORARY, OutputError, read_json, write_json
from .._runs.limits import memory_share_bytes
from .._runs.plugins import import_plugins
from ..errors import InvalidArgument, Unavailable
from ..profiler.activity import variables_for_markers
from ..workflow.processes import run_group

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Request", "metrics", "profiles", "rows", "table"]

_FILE = "profiles.json"


@dataclass(frozen=True)
class Request:
    """Everything that decides what is observed; equal requests can share a directory."""

    job: str
    batch_sizes: tuple[int, ...]
    metrics: str = "timeline"
    start_iteration: int = 10
    profile_iterations: int = 12
    B: int = 0
    device: str = "cpu"
    precision: str = "fp32"
    threads: int | None = None
    seed: int = 0
    data: str = "auto"
    dataroot: str | None = None
    plugins: tuple[str, ...] = ()
    timeout_s: float = 3600.0

    def checked(self) -> Request:
        """Itself, with batch sizes and device resolved.

        Raises:
            InvalidArgument: a value is refused; the message says what is accepted.
            Unavailable: the device is not there.
        """
        from dataclasses import replace

        from .. import jobs
        from ..profiler.catalogue import choose
        from .job import windows_of

        import_plugins(self.plugins, [os.getcwd()])
        Job = jobs.get(self.job)
        choose(self.metrics)
        windows_of(self.start_iteration, self.profile_iterations)
        sizes = self.batch_sizes or (getattr(Job, "defaults", {}).get("batch_size", 32),)
        device = _device(self.device)
        if len(set(sizes)) < len(sizes):
            raise InvalidArgument(f"--batch-sizes: {','.join(map(str, sizes))} names one twice")
        for size in sizes:
            Job(jobs.JobConfig(B=self.B, device=device, precision=self.precision, batch_size=size))
        return replace(self, batch_sizes=tuple(sizes), device=device)


def _device(asked: str) -> str:
    import torch

    if asked not in ("auto", "cpu", "cuda"):
        raise InvalidArgument(f"--device {asked!r}: accepted are auto, cpu and cuda")
    if asked == "cuda" and not torch.cuda.is_available():
        raise Unavailable(
            "no CUDA device is usable", "torch.cuda", "dnnsuite doctor says why; use --device cpu"
        )
    return "cuda" if asked != "cpu" and torch.cuda.is_available() else "cpu"


def profiles(
    request: Request, out: Path, say: Callable[[str], None] = lambda text: None
) -> list[dict[str, Any]]:
    """The result of each batch size, in order; those that `out` has already are not made again.

    A batch size that fails, for want of memory say, is a result with its `failure`; the others are made all the same.

    Raises:
        InvalidArgument: `out` holds profiles of another request.
        OutputError: `out` cannot be written.
    """
    _claim(request, out)
    results = []
    for index, size in enumerate(request.batch_sizes, 1):
        final = out / f"batch_{size}"
        where = f"batch size {size} ({index} of {len(request.batch_sizes)})"
        if not (final / "result.json").is_file():
            say(f"{where}: starts")
            _one(request, size, final, functools.partial(_say_where, say, where))
        result = read_json(final / "result.json")
        say(f"{where}: {result['status']}" + (f", {result['message']}" if result["status"] != "ok" else ""))
        results.append({**result, "batch_size": size, "directory": str(final)})
    return results


def _say_where(say: Callable[[str], None], where: str, text: str) -> None:
    say(f"{where}: {text}")


def _claim(request: Request, out: Path) -> None:
    settings = {key: value for key, value in asdict(request).items() if key != "batch_sizes"}
    settings = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
    if (out / _FILE).is_file():
        before = read_json(out / _FILE)
        differing = sorted(key for key in settings if before.get(key) != settings[key])
        if differing:
            raise InvalidArgument(
                f"{out} holds profiles of another request (they differ in {', '.join(differing)})"
            )
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {out}: {error.strerror}") from error
    write_json(out / _FILE, settings)


def _one(request: Request, size: int, final: Path, say: Callable[[str], None]) -> None:
    """One batch size in a process of its own; its directory appears when it is complete."""
    temporary = final.with_name(f"{TEMPORARY}{final.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
    except OSError as error:
        raise OutputError(f"cannot make {temporary}: {error.strerror}") from error
    config = {"B": request.B, "device": request.device, "precision": request.precision, "batch_size": size,
              "seed": request.seed, "data": request.data, "dataroot": request.dataroot,
              "threads": request.threads}  # fmt: skip
    spec = {
        "kind": "profile", "job": request.job, "plugins": list(request.plugins), "sys_path": [os.getcwd()],
        "config": config, "directory": str(temporary), "metrics": request.metrics,
        "start_iteration": request.start_iteration, "profile_iterations": request.profile_iterations,
        "memory_limit_bytes": memory_share_bytes(1) if request.device == "cpu" else None,
        "cuda_memory_fraction": None,
    }  # fmt: skip
    try:
        outcome = run_group([spec], [_environment(request)], request.timeout_s, _Ticker(temporary, say).tick)
        if outcome.ok:
            result = {"status": "ok", "failure": None, "message": "", **outcome.results[0]}
        else:
            result = {"status": "failed", "failure": outcome.failure, "message": outcome.message}
        write_json(temporary / "result.json", {**result, "seconds": outcome.seconds})
        (temporary / "progress.txt").unlink(missing_ok=True)
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _environment(request: Request) -> dict[str, str]:
    chosen = variables_for_markers()
    chosen["KINETO_LOG_LEVEL"] = os.environ.get("KINETO_LOG_LEVEL", "99")  # it reports each window on stderr
    if request.threads:
        chosen |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(request.threads))
    return chosen


class _Ticker:
    """Says how far the worker is, each time that changes by a tenth."""

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self._file, self._say, self._tenth = directory / "progress.txt", say, 0

    def tick(self) -> None:
        with suppress(OSError, ValueError):
            done, steps = map(int, self._file.read_text().split())
            if done * 10 // steps > self._tenth:
                self._tenth = done * 10 // steps
                self._say(f"step {done} of {steps}")


def rows(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each batch size: rate with its interval, utilisation, overhead, shares of the step, memory."""
    return [_row(result) for result in results]


def _row(result: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"batch_size": result["batch_size"], "status": result["failure"] or "ok"}
    if result["status"] != "ok":
        return {**row, "message": result["message"]}
    profile = result["profile"]
    about, rate, cost = profile["about"], profile["rate"], profile["overhead"]
    for key, name in (("steps_per_s", "rate"), ("low", "rate_low"), ("high", "rate_high")):
        row[name] = None if rate is None or rate[key] is None else rate[key] * about["items_per_step"]
    row |= {"unit": f"{about['unit']}/s", "cpu_busy_pct": profile["cpu_busy_pct"],
            "displaced_pct": profile["displaced_pct"], "overhead_pct": cost["pct"] if cost else None}  # fmt: skip
    row |= {f"{each['class']} (%)": each["share_pct"] for each in profile["breakdown"]}
    for each in profile.get("utilization", []):
        row[f"{each['core']}_pct_of_step"] = each["pct_of_step"]
        row[f"{each['core']}_pct_of_busy"] = each["pct_of_busy"]
    row["peak_rss_bytes"] = result["process"]["peak_rss_bytes"]
    if "peak_cuda_bytes" in result["process"]:
        row["peak_cuda_bytes"] = result["process"]["peak_cuda_bytes"]
    return row


def table(results: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """:func:`rows` as a table; shares that a batch size has not are 0."""
    import pandas as pd

    made = pd.DataFrame(rows(results))
    shares = [column for column in made.columns if column.endswith("(%)")]
    finished = made["status"] == "ok"
    made.loc[finished, shares] = made.loc[finished, shares].fillna(0.0)
    return made


_MEANINGS = {
    "rate": "items per second: steps without instruments, mean with a 95 % interval by batch means",
    "cpu_busy_pct": "CPU time of the process over wall time times the CPUs it may use, of the observed steps",
    "displaced_pct": "share of the observed time in which the loop's thread was ready and had no CPU",
    "overhead_pct": "how much longer a step takes under the instruments than beside them",
    "peak_rss_bytes": "largest resident set of the process",
    "peak_cuda_bytes": "largest memory that torch's allocator gave out",
}


def metrics(result: dict[str, Any]) -> pd.DataFrame:
    """The figures of one batch size, one a row: columns metric, value, low, high, unit, definition."""
    import pandas as pd

    row = _row(result)
    meanings = {
        f"{each['class']} (%)": each["definition"] for each in result["profile"]["breakdown"]
    } | _MEANINGS
    for each in result["profile"].get("utilization", []):
        core = each["core"]
        meanings[f"{core}_pct_of_step"] = f"use of the GPU's {core} in the whole step, of its peak"
        meanings[f"{core}_pct_of_busy"] = f"use of the GPU's {core} while kernels ran, of its peak"
    cost = result["profile"]["overhead"] or {}
    bounds = {"rate": (row["rate_low"], row["rate_high"]),
              "overhead_pct": (cost.get("low_pct"), cost.get("high_pct"))}  # fmt: skip
    lines = [
        (
            name.removesuffix(" (%)"),
            row[name],
            *bounds.get(name, (None, None)),
            _unit(name, row["unit"]),
            meaning,
        )
        for name, meaning in meanings.items()
        if row.get(name) is not None
    ]
    return pd.DataFrame(lines, columns=["metric", "value", "low", "high", "unit", "definition"])


def _unit(name: str, rate: str) -> str:
    if name == "rate":
        return rate
    return "bytes" if name.endswith("_bytes") else "% of a step" if name.endswith("(%)") else "%"
