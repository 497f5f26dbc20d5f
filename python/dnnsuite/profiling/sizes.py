# SPDX-License-Identifier: MIT
"""Profiles of one job over batch sizes: a process for each, a row for each, and their summary."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]

from .. import host
from .._files import read_json
from .._lazy import pandas as pd
from .._runs.folder import PROFILES_FILE, PlanFolder, final, opened
from .._runs.group import Direct
from .._runs.interrupts import interruptible
from .._runs.limits import memory_share_bytes
from .._runs.record import Metric, Moment, RunRecord
from .._runs.spec import RESULT_FILE, import_plugins
from .._runs.turn_workers import run_group
from .._runs.words import choose_device
from .._shown import size as shown_size
from ..errors import InvalidArgument
from ..profiler.activity import variables_for_markers
from ..profiler.monitor import Monitor, check_monitor
from .throughput_request import JobRequest, SingleRun


@dataclass(frozen=True)
class Request(JobRequest):
    """Settings of an observation; equal requests can share a directory."""

    metrics: str = "timeline"
    start_iteration: int = 10
    profile_iterations: int = 12
    device: str = "cpu"
    monitor: str = "auto"

    def checked(self) -> Request:
        """Return the request with batch sizes and device resolved.

        Raises:
            InvalidArgument: a value is refused; the message says what is accepted.
            Unavailable: the device is not there.
        """
        from .. import jobs
        from ..profiler.instrument import choose
        from .job import windows_of

        self.check_limits()
        import_plugins(self.plugins, [os.getcwd()])
        choose(self.metrics)  # before a job imports torch
        check_monitor(self.monitor)
        Job = jobs.get(self.job)
        windows_of(self.start_iteration, self.profile_iterations)
        sizes = self.batch_sizes or (getattr(Job, "defaults", {}).get("batch_size", 32),)
        device = choose_device(self.device)
        made = replace(self, batch_sizes=tuple(sizes), device=device)
        for size in sizes:
            Job(made.config(size))  # refuses what it does not take
        return made


def profiles(request: Request, out: Path, say: Callable[[str], None] = lambda text: None) -> list[dict[str, Any]]:
    """Profile each batch size, in order; those that `out` has already are not made again.

    A batch size that fails, for want of memory say, is a result with its `failure`; the others are still made.

    Raises:
        InvalidArgument: `out` holds something else, or profiles of another request.
        OutputError: `out` cannot be written.
    """
    results = []
    known = (out / PROFILES_FILE).is_file()
    with interruptible(), opened(out, PROFILES_FILE, known, runs=".") as folder:
        _claim(request, folder, known)
        for index, size in enumerate(request.batch_sizes, 1):
            where = f"batch size {size} ({index} of {len(request.batch_sizes)})"
            result = _finished(folder, size)
            if result is None:
                say(f"{where}: starts")
                result = _result(_one(request, size, folder, lambda text: say(f"{where}: {text}")))  # noqa: B023
            say(f"{where}: {result['status']}" + (f", {result['message']}" if result["status"] != "ok" else ""))
            results.append({**result, "batch_size": size, "directory": str(folder.runs / _name(size))})
    return results


def _name(size: int) -> str:
    return f"batch_{size}"


def _finished(folder: PlanFolder, size: int) -> dict[str, Any] | None:
    """Return the result of a batch size, unless there is none or another try may end better."""
    old = folder.runs / _name(size) / RESULT_FILE  # of earlier versions, which had no record beside it
    if old.is_file():
        found: dict[str, Any] = read_json(old)
        return found
    for run in folder.finished()[0]:
        if run.directory.name == _name(size) and final(run.record):
            return _result(run.record)
    return None


def _result(run: RunRecord) -> dict[str, Any]:
    """Return a record in the form that rows and figures are made of."""
    verdict = asdict(run.verdict)
    return {**verdict, **{name: run.details[name] for name in _FOUND if name in run.details}, "seconds": run.seconds}


_FOUND = ("profile", "provenance", "process")


def _claim(request: Request, folder: PlanFolder, known: bool) -> None:
    settings = {key: value for key, value in request.to_dict().items() if key != "batch_sizes"}
    before = {"monitor": "auto", "options": {}}  # of directories that an earlier version began
    differing = sorted(key for key in settings if known and folder.state.get(key, before.get(key)) != settings[key])
    if differing:
        raise InvalidArgument(
            f"{folder.root} holds profiles of another request (they differ in {', '.join(differing)})"
        )
    folder.state.update(settings)
    folder.save()


def _one(request: Request, size: int, folder: PlanFolder, say: Callable[[str], None]) -> RunRecord:
    """One batch size in a process of its own; its directory appears when it is complete."""
    # DCGM would hold the counters that a profile reads: only when it is asked for.
    monitor = Monitor(request.monitor, gpus=request.device == "cuda", counters=False)
    details = {name: getattr(request, name) for name in ("metrics", "start_iteration", "profile_iterations")}
    variables, memory, tick = _environment(request), memory_share_bytes(1), _ticker(say)
    single = SingleRun("profile", "dnnsuite.profiling.job:observe", request, request.config(size), details, variables)
    directory, started = folder.begin_run(_name(size)), Moment.now()
    try:
        with monitor:
            outcome = run_group(
                [single.spec(directory, memory)], [variables], request.timeout_s, Direct(memory),
                tick=lambda: tick(directory), started=monitor.follow,
            )  # fmt: skip
        monitor.write(directory)
        result = outcome.results[0] if outcome.workers else {}
        run, rate = single.record(folder, started, outcome, result), _rate(result)
        run = replace(
            run,
            items_per_step=float(result["profile"]["about"]["items_per_step"]) if run.ok else 0.0,
            metrics=(rate,) if rate and run.ok else (),
            window=result.get("window", {}),
            details={**{name: result[name] for name in _FOUND if name in result}, "monitor": monitor.record()},
        )
        single.finish(folder, directory, run)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return run


def _rate(result: Mapping[str, Any]) -> Metric | None:
    """Items per second of the steps without instruments; None where they are too few."""
    profile = result.get("profile")
    if not profile or profile["rate"] is None:
        return None
    items, found = profile["about"]["items_per_step"], profile["rate"]
    value, low, high = (None if found[key] is None else found[key] * items for key in ("steps_per_s", "low", "high"))
    if value is None:
        return None
    return Metric("throughput", value, f"{profile['about']['unit']}/s", low, high, definition=_MEANINGS["rate"])


def _environment(request: Request) -> dict[str, str]:
    chosen = variables_for_markers()
    chosen["KINETO_LOG_LEVEL"] = os.environ.get("KINETO_LOG_LEVEL", "99")  # it reports each window on stderr
    if request.threads:
        chosen |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(request.threads))
    return chosen


def _ticker(say: Callable[[str], None]) -> Callable[[Path], None]:
    """Return a function that reports the worker's progress, each time it has changed by a tenth."""
    tenth = 0

    def tick(directory: Path) -> None:
        nonlocal tenth
        with suppress(OSError, ValueError):
            done, steps = map(int, (directory / "progress.txt").read_text().split())
            if done * 10 // steps > tenth:
                tenth = done * 10 // steps
                say(f"step {done} of {steps}")

    return tick


def rows(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each batch size: rate with its interval, utilisation, overhead, shares of the step, memory."""
    return [_row(result) for result in results]


def _row(result: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"batch_size": result["batch_size"], "status": result["failure"] or "ok"}
    if result["status"] != "ok":
        return {**row, "message": result["message"]}
    profile = result["profile"]
    about, cost = profile["about"], profile["overhead"]
    rate = _rate(result)
    row |= {"rate": rate and rate.value, "rate_low": rate and rate.low, "rate_high": rate and rate.high}
    row |= {
        "unit": f"{about['unit']}/s",
        "cpu_busy_pct": profile["cpu_busy_pct"],
        "displaced_pct": profile["displaced_pct"],
        "overhead_pct": cost["pct"] if cost else None,
    }
    row |= {f"{each['class']} (%)": each["share_pct"] for each in profile["breakdown"]}
    for each in profile.get("utilization", []):
        row[f"{each['core']}_pct_of_step"] = each["pct_of_step"]
        row[f"{each['core']}_pct_of_busy"] = each["pct_of_busy"]
    row["peak_rss_bytes"] = result["process"]["peak_rss_bytes"]
    if "peak_cuda_bytes" in result["process"]:
        row["peak_cuda_bytes"] = result["process"]["peak_cuda_bytes"]
    return row


def table(results: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Make a table of :func:`rows`; shares that a batch size lacks are 0."""
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
    """Return the figures of one batch size, one a row: columns metric, value, low, high, unit, definition."""
    row = _row(result)
    meanings = {f"{each['class']} (%)": each["definition"] for each in result["profile"]["breakdown"]} | _MEANINGS
    for each in result["profile"].get("utilization", []):
        core = each["core"]
        meanings[f"{core}_pct_of_step"] = f"use of the GPU's {core} in the whole step, of its peak"
        meanings[f"{core}_pct_of_busy"] = f"use of the GPU's {core} while kernels ran, of its peak"
    cost = result["profile"]["overhead"] or {}
    bounds = {"rate": (row["rate_low"], row["rate_high"]), "overhead_pct": (cost.get("low_pct"), cost.get("high_pct"))}
    lines = [
        (
            name.removesuffix(" (%)"), row[name], *bounds.get(name, (None, None)),
            row["unit"] if name == "rate" else "bytes" if name.endswith("_bytes")
            else "% of a step" if name.endswith("(%)") else "%",
            meaning,
        )
        for name, meaning in meanings.items()
        if row.get(name) is not None
    ]  # fmt: skip
    return pd.DataFrame(lines, columns=["metric", "value", "low", "high", "unit", "definition"])


_MOST = 3
_LEAST_BYTES = 64 << 20  # below, nobody's memory is worth a word
_SPARE = 0.95  # of the memory that is free, what a run may plan with: allocators round up


class Holder(NamedTuple):
    """A process that holds memory of a device."""

    pid: int
    name: str
    bytes: int


def fitting_batch_size(peaks: Mapping[int, int], room_bytes: int, failed: int) -> int | None:
    """Return the largest batch size below `failed` whose memory fits into `room_bytes`; None where none that fits is
    known.

    Args:
        peaks: peak memory in bytes of batch sizes that ran. Memory is taken to grow by a line through the two largest;
            of a single one in proportion, which rather names too small a size.
    """
    sizes = sorted(peaks)
    if not sizes:
        return None
    last = sizes[-1]
    first = sizes[-2] if len(sizes) > 1 else 0
    each = (peaks[last] - (peaks[first] if first else 0)) / (last - first)
    fixed = peaks[last] - each * last
    fits = int((room_bytes * _SPARE - fixed) / each) if each > 0 else failed - 1
    return max(last, min(fits, failed - 1))


def hint(results: Sequence[Mapping[str, Any]], device: str) -> list[str]:
    """Write sentences about batch sizes that ran out of memory; none where all fitted.

    Args:
        results: results from :func:`dnnsuite.profiling.sizes.profiles`.
        device: `cpu` or `cuda`.
    """
    failed = [result["batch_size"] for result in results if result["failure"] == "oom"]
    if not failed:
        return []
    key = "peak_cuda_bytes" if device == "cuda" else "peak_rss_bytes"
    ran = [result for result in results if result["status"] == "ok"]
    peaks = {result["batch_size"]: result["process"][key] for result in ran if key in result["process"]}
    room, held = _room_bytes(device), holders(device)
    said = [f"memory: {shown_size(room)} are free on this {_WORDS[device]}"] if room is not None else []
    others = ", ".join(f"{each.name} (process {each.pid}): {shown_size(each.bytes)}" for each in held)
    said.append(
        f"memory: held by {others}" if held else f"memory: no other process holds much of the {_WORDS[device]}'s"
    )
    fits = None if room is None else fitting_batch_size(peaks, room, min(failed))
    if fits is not None:
        said.append(f"memory: batch size {fits} would fit by the sizes that did; try --batch-sizes {fits}")
    elif not peaks:
        smaller = max(1, min(failed) // 2)
        said.append(f"memory: no batch size has run yet, so it is unknown what fits; try --batch-sizes {smaller}")
    return said


_WORDS = {"cpu": "machine", "cuda": "GPU"}


def holders(device: str) -> list[Holder]:
    """List the processes that hold most of the device's memory, without this one; empty if unknown."""
    if device == "cuda":
        rows = (line.split(", ") for line in _asked("--query-compute-apps=pid,process_name,used_memory"))
        found = [
            Holder(int(row[0]), Path(row[1]).name, int(row[2]) << 20)
            for row in rows
            if len(row) == 3 and row[0].isdigit() and row[2].isdigit()
        ]
    else:
        running = (each.info for each in psutil.process_iter(["pid", "name", "memory_info"]))
        found = [Holder(info["pid"], info["name"], info["memory_info"].rss) for info in running if info["memory_info"]]
    others = [each for each in found if each.pid != os.getpid() and each.bytes >= _LEAST_BYTES]
    return sorted(others, key=lambda each: -each.bytes)[:_MOST]


def _room_bytes(device: str) -> int | None:
    if device != "cuda":
        return host.available_memory_bytes()
    free = [int(line) << 20 for line in _asked("--query-gpu=memory.free") if line.isdigit()]
    return free[0] if free else None


def _asked(query: str) -> list[str]:
    """Lines of nvidia-smi on the GPU that this process computes on; none where it is missing or says nothing."""
    found = shutil.which("nvidia-smi")
    if found is None:
        return []
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    which = [f"--id={first}"] if first.isdigit() or first.startswith("GPU-") else []
    command = [found, query, "--format=csv,noheader,nounits", *which]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
